#include "real_spy.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace {

// Integers and pointers, six at most: the calling conventions of x86-64 and AArch64 pass those alike whatever their
// types, and an unused register does no harm.
using Word = std::size_t;
using Function = Word(Word, Word, Word, Word, Word, Word);

constexpr std::size_t most_functions = 128;

struct Spied {
  std::string name;
  Function *function = nullptr;
  std::atomic<long> calls;
  std::atomic<Word> arguments[6];
};

struct Table {
  std::mutex mutex;
  std::size_t used = 0;
  Spied spied[most_functions];
};

// Outlives the vendors' exit handlers.
Table &table() {
  static Table *const only = new Table;
  return *only;
}

template <std::size_t I> Word thunk(Word a, Word b, Word c, Word d, Word e, Word f) {
  Spied &one = table().spied[I];
  const Word arguments[] = {a, b, c, d, e, f};
  for (std::size_t i = 0; i < 6; ++i) one.arguments[i] = arguments[i];
  ++one.calls;
  return one.function(a, b, c, d, e, f);
}

template <std::size_t... I> constexpr std::array<Function *, sizeof...(I)> make_thunks(std::index_sequence<I...>) {
  return {thunk<I>...};
}

constexpr auto thunks = make_thunks(std::make_index_sequence<most_functions>());

void *spy_on(const char *name, void *address) {
  Table &all = table();
  const std::lock_guard lock(all.mutex);
  for (std::size_t i = 0; i < all.used; ++i)
    if (reinterpret_cast<void *>(all.spied[i].function) == address) return reinterpret_cast<void *>(thunks[i]);
  if (all.used == most_functions) std::abort();
  Spied &one = all.spied[all.used];
  one.name = name;
  one.function = reinterpret_cast<Function *>(address);
  return reinterpret_cast<void *>(thunks[all.used++]);
}

void *spying_dlsym(void *handle, const char *name) {
  void *const address = dlsym(handle, name);
  return address == nullptr ? nullptr : spy_on(name, address);
}

// Puts `to` into each slot of the library that the dynamic loader filled for the symbol. A definition of dlsym in this
// program would do so too, but for everybody, and would break what others find with RTLD_NEXT, the sanitizers first.
class Slots {
 public:
  explicit Slots(const link_map &library) : base_(library.l_addr) {
    for (const ElfW(Dyn) *entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) read(*entry);
  }

  int redirect(std::string_view symbol, void *to) const {
    return redirect(relocations_, relocations_bytes_, symbol, to) + redirect(calls_, calls_bytes_, symbol, to);
  }

 private:
  void read(const ElfW(Dyn) & entry) {
    switch (entry.d_tag) {
      case DT_SYMTAB: symbols_ = reinterpret_cast<const ElfW(Sym) *>(entry.d_un.d_ptr); break;
      case DT_STRTAB: names_ = reinterpret_cast<const char *>(entry.d_un.d_ptr); break;
      case DT_RELA: relocations_ = reinterpret_cast<const ElfW(Rela) *>(entry.d_un.d_ptr); break;
      case DT_RELASZ: relocations_bytes_ = entry.d_un.d_val; break;
      case DT_JMPREL: calls_ = reinterpret_cast<const ElfW(Rela) *>(entry.d_un.d_ptr); break;
      case DT_PLTRELSZ: calls_bytes_ = entry.d_un.d_val; break;
      default: break;
    }
  }

  int redirect(const ElfW(Rela) * first, std::size_t bytes, std::string_view symbol, void *to) const {
    int slots = 0;
    for (const ElfW(Rela) *one = first; one < first + bytes / sizeof *one; ++one) {
      if (symbol != names_ + symbols_[ELF64_R_SYM(one->r_info)].st_name) continue;
      write(base_ + one->r_offset, to);
      ++slots;
    }
    return slots;
  }

  // The loader may have made the slot read-only.
  static void write(ElfW(Addr) slot, void *to) {
    const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
    if (mprotect(reinterpret_cast<void *>(slot / page * page), page, PROT_READ | PROT_WRITE) != 0) std::abort();
    std::memcpy(reinterpret_cast<void *>(slot), &to, sizeof to);
  }

  ElfW(Addr) base_;
  const ElfW(Sym) *symbols_ = nullptr;
  const char *names_ = nullptr;
  const ElfW(Rela) *relocations_ = nullptr, *calls_ = nullptr;
  std::size_t relocations_bytes_ = 0, calls_bytes_ = 0;
};

// Before main, and so before the library looks anything up.
[[gnu::constructor]] void begin() {
  void *const library = dlopen("libhostpin.so.1", RTLD_NOW | RTLD_NOLOAD);
  link_map *map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) std::abort();
  if (Slots(*map).redirect("dlsym", reinterpret_cast<void *>(spying_dlsym)) == 0) std::abort();
}

Spied *find(std::string_view name) {
  Table &all = table();
  const std::lock_guard lock(all.mutex);
  for (std::size_t i = 0; i < all.used; ++i)
    if (all.spied[i].name == name) return &all.spied[i];
  return nullptr;
}

} // namespace

namespace spy {

long calls(const char *name) {
  const Spied *one = find(name);
  return one == nullptr ? 0 : one->calls.load();
}

long calls() {
  Table &all = table();
  const std::lock_guard lock(all.mutex);
  long sum = 0;
  for (std::size_t i = 0; i < all.used; ++i) sum += all.spied[i].calls;
  return sum;
}

std::array<std::size_t, 6> latest_arguments(const char *name) {
  std::array<std::size_t, 6> arguments{};
  if (const Spied *one = find(name))
    for (std::size_t i = 0; i < 6; ++i) arguments[i] = one->arguments[i];
  return arguments;
}

} // namespace spy
