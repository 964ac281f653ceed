// The main function of test programs with Catch2 2, which has it in its header.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
