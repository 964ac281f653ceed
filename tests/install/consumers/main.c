/* Registers memory and says how that went: "VERSION STATUS", then what the library has against CUDA. */
#include <hostpin.h>
#include <stdio.h>

static char memory[1 << 16];

int main(void) {
  hp_backend_info info = {.struct_size = sizeof(info)};
  const int32_t status = hp_register(memory, sizeof(memory), 0);
  if (status < 0 || hp_unregister(memory) != HP_OK || hp_get_backend(&info) != HP_OK) {
    fprintf(stderr, "%s\n", hp_last_error());
    return 1;
  }
  printf("%s %d\n%s\n", hp_version_string(), (int)status, info.cuda_reason);
  return 0;
}
