#define CATCH_CONFIG_MAIN
#include "sim_test.h"
