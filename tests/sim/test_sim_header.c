/* The header is C, and complete by itself. */
#include "hostpin-sim.h"

_Static_assert(sizeof(hps_call) == 48, "hps_call has holes, or has changed: then bump the soname");
_Static_assert(sizeof(hps_registration) == 32, "hps_registration has holes, or has changed: then bump the soname");
