// The library's file: what it needs, what it offers, and that loading it runs nothing.
//   elf_file LIBRARY VERSION_SCRIPT
#include "real_check.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <span>
#include <vector>

namespace {

using Header = ElfW(Ehdr);
using Section = ElfW(Shdr);
using Segment = ElfW(Phdr);
using Symbol = ElfW(Sym);
using Entry = ElfW(Dyn);
using Names = std::set<std::string>;

class File {
 public:
  explicit File(const char *path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status {};
    CHECK(file >= 0 && fstat(file, &status) == 0);
    void *mapped = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(mapped != MAP_FAILED);
    bytes_ = static_cast<const char *>(mapped);
    CHECK(std::memcmp(bytes_, ELFMAG, SELFMAG) == 0);
  }

  std::span<const Section> sections() const { return {at<Section>(header().e_shoff), header().e_shnum}; }
  std::span<const Segment> segments() const { return {at<Segment>(header().e_phoff), header().e_phnum}; }

  const Section *section(unsigned type) const {
    const auto found = std::ranges::find(sections(), type, &Section::sh_type);
    return found == sections().end() ? nullptr : &*found;
  }

  template <class T> std::span<const T> table(unsigned type) const {
    const Section *found = section(type);
    if (found == nullptr) return {};
    return {at<T>(found->sh_offset), found->sh_size / sizeof(T)};
  }

  // A name in the string table that belongs to the table of this type.
  std::string name(unsigned type, std::size_t offset) const {
    return at<char>(sections()[section(type)->sh_link].sh_offset) + offset;
  }

  std::vector<Entry> dynamic(long tag) const {
    std::vector<Entry> found;
    for (const Entry &entry : table<Entry>(SHT_DYNAMIC))
      if (entry.d_tag == tag) found.push_back(entry);
    return found;
  }

  Names dynamic_names(long tag) const {
    Names names;
    for (const Entry &entry : dynamic(tag)) names.insert(name(SHT_DYNAMIC, entry.d_un.d_val));
    return names;
  }

  Names symbols(bool defined) const {
    Names names;
    for (const Symbol &symbol : table<Symbol>(SHT_DYNSYM))
      if ((symbol.st_shndx != SHN_UNDEF) == defined && symbol.st_name != 0) names.insert(name(SHT_DYNSYM, symbol.st_name));
    return names;
  }

 private:
  const Header &header() const { return *at<Header>(0); }
  template <class T> const T *at(std::size_t offset) const { return reinterpret_cast<const T *>(bytes_ + offset); }

  const char *bytes_;
};

std::string list(const Names &names) {
  std::string text;
  for (const std::string &one : names) text += " " + one;
  return text;
}

// The functions and the nodes that the version script names.
Names names_of_interface(const char *version_script) {
  Names names;
  std::ifstream script(version_script);
  CHECK(script.good());
  for (std::string word; script >> word;) {
    if (word.starts_with("hp_") && word.ends_with(";")) names.insert(word.substr(0, word.size() - 1));
    if (word.starts_with("HOSTPIN_")) names.insert(word);
  }
  return names;
}

void check_needed(const File &file) {
  const Names usual = {"libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"};
  Names needed = file.dynamic_names(DT_NEEDED);
  std::erase_if(needed, [&](const std::string &library) { return usual.contains(library); });
  if (!needed.empty()) real::fail("NEEDED", 0, "libraries besides the C and C++ ones:", list(needed));
  CHECK(file.dynamic_names(DT_SONAME) == Names{"libhostpin.so.1"});
  CHECK(file.dynamic(DT_RPATH).empty() && file.dynamic(DT_RUNPATH).empty());
}

void check_flags(const File &file) {
  const auto flags = file.dynamic(DT_FLAGS_1);
  CHECK(flags.size() == 1 && (flags[0].d_un.d_val & DF_1_NODELETE) != 0);
  CHECK(file.dynamic(DT_TEXTREL).empty());
  for (const Entry &entry : file.dynamic(DT_FLAGS)) CHECK((entry.d_un.d_val & (DF_TEXTREL | DF_STATIC_TLS)) == 0);
  for (const Segment &segment : file.segments()) {
    CHECK(segment.p_type != PT_TLS);
    if (segment.p_type == PT_GNU_STACK) CHECK((segment.p_flags & PF_X) == 0);
    if (segment.p_type == PT_LOAD) CHECK((segment.p_flags & PF_W) == 0 || (segment.p_flags & PF_X) == 0);
  }
}

void check_exports(const File &file, const char *version_script) {
  const Names expected = names_of_interface(version_script), exported = file.symbols(true);
  CHECK(expected.contains("hp_register"));
  if (exported != expected) real::fail("exported", 0, list(exported).c_str(), "and not" + list(expected));
}

// What would change the process, or make something happen in its children. Not atexit: threads of the library are kept from
// calling drivers while the process ends, and exits.cpp sees what is called.
void check_imports(const File &file) {
  static const Names forbidden = {
      "on_exit", "at_quick_exit", "__cxa_at_quick_exit", "__cxa_thread_atexit",
      "__cxa_thread_atexit_impl", "__register_atfork", "pthread_atfork", "exit", "_exit", "quick_exit", "abort",
      "signal", "sigaction", "sigaltstack", "sigprocmask", "setenv", "putenv", "unsetenv", "clearenv", "getenv", "setlocale",
      "uselocale", "chdir", "fchdir", "umask", "setrlimit", "setrlimit64", "prctl", "dlclose", "fork", "vfork", "system",
      "popen", "posix_spawn", "execve", "printf", "puts", "putchar", "stdout", "fesetround", "fesetenv", "malloc_trim",
      "mallopt", "_ZSt4cout", "_ZNSt8ios_base4InitC1Ev"};
  Names found = file.symbols(false);
  CHECK(found.contains("dlopen"));
  std::erase_if(found, [](const std::string &symbol) { return !forbidden.contains(symbol); });
  if (!found.empty()) real::fail("imports", 0, "what the library must not call:", list(found));
}

// One function runs when the library is loaded and one when it goes, both the compiler's own for any library.
void check_nothing_runs(const File &file) {
  for (const auto &[tag, own] : {std::pair{DT_INIT_ARRAYSZ, "frame_dummy"}, {DT_FINI_ARRAYSZ, "__do_global_dtors_aux"}}) {
    const auto size = file.dynamic(tag);
    CHECK(size.size() == 1);
    CHECK_EQUAL(size[0].d_un.d_val, sizeof(void *));
    const auto symbols = file.table<Symbol>(SHT_SYMTAB);
    const std::string name = own;
    const auto found = std::ranges::find_if(symbols, [&](const Symbol &s) { return file.name(SHT_SYMTAB, s.st_name) == name; });
    CHECK(found != symbols.end());
    const auto relocations = file.table<ElfW(Rela)>(SHT_RELA);
    const auto array = file.dynamic(tag == DT_INIT_ARRAYSZ ? DT_INIT_ARRAY : DT_FINI_ARRAY);
    const auto entry = std::ranges::find(relocations, array.at(0).d_un.d_ptr, &ElfW(Rela)::r_offset);
    CHECK(entry != relocations.end());
    CHECK_EQUAL(entry->r_addend, found->st_value);
  }
}

// All that stripping leaves is loaded.
void check_size(const File &file) {
  std::size_t end = 0;
  for (const Segment &segment : file.segments())
    if (segment.p_type == PT_LOAD) end = std::max<std::size_t>(end, segment.p_offset + segment.p_filesz);
  CHECK(end > 10000 && end < 300 * 1024);
}

} // namespace

int main(int argc, char **argv) {
  CHECK_EQUAL(argc, 3);
  const File file(argv[1]);
  check_needed(file);
  check_flags(file);
  check_exports(file, argv[2]);
  check_imports(file);
  check_nothing_runs(file);
  check_size(file);
}
