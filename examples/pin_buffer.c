/* Pins a buffer that exists already, uses it, and gives it back. */
#include <hostpin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  const size_t size = (size_t)64 << 20;
  char *buffer = malloc(size);
  if (!buffer) return 1;
  memset(buffer, 1, size);

  int32_t status = hp_register(buffer, size, 0);
  if (status < 0) { /* a mistake in the arguments or a lack of memory; never just "no GPU" */
    fprintf(stderr, "hp_register: %s\n", hp_last_error());
    free(buffer);
    return 1;
  }
  if (status == HP_OK)
    printf("pinned %zu bytes at %p: copies of it run by DMA\n", size, (void *)buffer);
  else /* HP_PAGEABLE or HP_FOREIGN: everything below works all the same */
    printf("not pinned by us: %s\n", hp_last_error());

  /* ... cudaMemcpyAsync, hipMemcpyAsync or zeCommandListAppendMemoryCopy from and to the buffer ... */

  /* Before the memory goes: end the registration, when no copy is in flight any more. */
  if (hp_unregister(buffer) == HP_E_STUCK) {
    fprintf(stderr, "%s\n", hp_last_error());
    return 1; /* the driver still holds the pages: do not free them */
  }
  free(buffer);
  return 0;
}
