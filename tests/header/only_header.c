/* Nothing but the header. */
#include <hostpin.h>

extern int header_is_complete;
int header_is_complete = HP_VERSION_MAJOR;
