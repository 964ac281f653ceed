/* Pins a buffer that exists already, uses it, and gives it back.
 *
 *   pin_buffer
 *
 * Exit codes: 0 done, pinned or not; 1 error.
 */
#include <hostpin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  const size_t size = (size_t)64 << 20;
  char *buffer = malloc(size);
  if (!buffer) return 1;
  memset(buffer, 1, size);

  const int32_t status = hp_register(buffer, size, 0);
  if (status == HP_OK)
    printf("pinned %zu bytes at %p: copies of it run by DMA\n", size, (void *)buffer);
  else /* everything below works all the same: also without a GPU, and over the budget */
    printf("not pinned by us: %s\n", hp_last_error());

  /* ... cudaMemcpyAsync, hipMemcpyAsync or zeCommandListAppendMemoryCopy from and to the buffer ... */

  /* Before the memory goes, and when no copy is in flight any more: end the registration. There is one if the status
   * was not an error, and if the driver did not take back what it had refused to complete. */
  if ((status >= 0 || status == HP_E_STUCK) && hp_unregister(buffer) != HP_OK) {
    fprintf(stderr, "pin_buffer: %s\n", hp_last_error());
    return 1; /* the driver still holds the pages: do not free them */
  }
  free(buffer);
  return 0;
}
