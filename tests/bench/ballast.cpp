// Holds memory while others measure, for virtual machines that give free memory back to their host: a page that was given
// back has to be fetched again when it is used next, which takes longer than all that is measured.
// Takes what memory is available but 512 MiB, or only TAKE_MIB; lets go of FREE_MIB of it, prints one line of JSON, and ends
// when its input does.
//   ballast pieces|whole FREE_MIB [TAKE_MIB]
//   pieces: what it lets go of are runs of 15 pages, each between two that it keeps. A host takes back 2 MiB and more, so
//           it takes none of these, however often they are used and let go of again. What else is free in blocks of
//           2 MiB is taken, too (without TAKE_MIB), so that none of it is used instead.
//   whole:  in one piece, for measurements that need huge pages. The host takes some of it back as time goes by.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "pinning.h"

namespace {

using namespace bench;

constexpr uint64_t kMargin = 512 * kMiB;
constexpr uint64_t kSlice = 64 * kMiB;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kPiece = 16 * kPage;  // of which the first page is kept

// Where memory runs out this is what has to go, not the program that measures.
void go_first() { std::ofstream("/proc/self/oom_score_adj") << 1000; }

char *map(uint64_t bytes) {
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("mmap of " + std::to_string(bytes / kMiB) + " MiB");
  return static_cast<char *>(p);
}

// How much could be made present.
uint64_t take_pages(char *start, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kSlice)
    if (madvise(start + at, std::min(kSlice, bytes - at), MADV_POPULATE_WRITE) != 0) return at;
  return bytes;
}

// "Node 0, zone   Normal   7  12 ...": how many blocks of 1, 2, 4 ... pages are free; the last two are 2 and 4 MiB.
uint64_t free_in_whole_blocks() {
  std::ifstream file("/proc/buddyinfo");
  uint64_t bytes = 0;
  for (std::string line, word, zone; std::getline(file, line);) {
    std::istringstream words(line);
    words >> word >> word >> word >> zone;
    if (zone != "Normal") continue;
    uint64_t blocks = 0;
    for (int order = 0; words >> blocks; ++order)
      if (order >= 9) bytes += blocks * (kPage << order);
  }
  return bytes;
}

void take_whole_blocks() {
  if (chosen("/sys/kernel/mm/transparent_hugepage/enabled") == "never") return;
  const uint64_t bytes = free_in_whole_blocks();
  if (bytes == 0) return;
  char *const start = map(bytes);
  madvise(start, bytes, MADV_HUGEPAGE);
  take_pages(start, bytes);
}

void let_go(char *at, uint64_t bytes) {
  if (madvise(at, bytes, MADV_DONTNEED) != 0) fail(std::string("madvise: ") + std::strerror(errno));
}

}  // namespace

int main(int argc, char **argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  if (argc < 3 || (how != "pieces" && how != "whole")) fail("usage: ballast pieces|whole FREE_MIB [TAKE_MIB]");
  const bool whole = how == "whole";
  const uint64_t available = available_memory();
  const uint64_t free = std::strtoull(argv[2], nullptr, 10) * kMiB;
  const uint64_t from = whole ? free : free / (kPiece - kPage) * kPiece;
  const uint64_t take = argc > 3 ? std::strtoull(argv[3], nullptr, 10) * kMiB : available - std::min(available, kMargin);
  if (free == 0 || from > take || take > available)
    fail("cannot take " + std::to_string(take / kMiB) + " MiB of the " + std::to_string(available / kMiB) +
         " MiB that are available, and let go of " + std::to_string(free / kMiB) + " MiB");
  go_first();
  char *const start = map(take);
  madvise(start, take, MADV_NOHUGEPAGE);
  if (const uint64_t taken = take_pages(start, take); taken < take)
    fail("no memory after " + std::to_string(taken / kMiB) + " MiB: " + std::strerror(errno));
  if (whole)
    let_go(start, from);
  else
    for (uint64_t at = 0; at < from; at += kPiece) let_go(start + at + kPage, kPiece - kPage);
  if (!whole && argc == 3) take_whole_blocks();
  std::printf("{\"ballast\": \"%s\", \"taken_bytes\": %llu, \"let_go_bytes\": %llu}\n", how.c_str(),
              static_cast<unsigned long long>(take), static_cast<unsigned long long>(free));
  std::fflush(stdout);
  for (char c; read(STDIN_FILENO, &c, 1) > 0;) {
  }
}
