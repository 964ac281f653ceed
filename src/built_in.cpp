// The backends that are built in, and for each the ELF note in which packagers and tools find the libraries that it
// opens (UAPI.12, "ELF dlopen metadata"). In one file: a program that takes the list from a static library takes the
// notes with it.
#include <iterator>

#include "backend.h"

// In assembly, where compilers put neither gaps between the notes nor relocations or write permission on them. The
// sonames in the order in which they are tried, each as \"NAME\".
#define DLOPEN_NOTE(feature, description, sonames)                                                          \
  asm(".pushsection .note.dlopen, \"a\", %note\n"                                                           \
      ".balign 4\n"                                                                                         \
      ".long 1f - 0f, 3f - 2f, 0x407c0c0a\n"                                                                \
      "0: .asciz \"FDO\"\n"                                                                                 \
      "1: .balign 4\n"                                                                                      \
      "2: .asciz \"" R"([{\"feature\":\")" feature R"(\",\"description\":\")" description                   \
      R"(\",\"priority\":\"suggested\",\"soname\":[)" sonames "]}]\"\n"                                     \
      "3: .balign 4\n"                                                                                      \
      ".popsection")

#if HOSTPIN_CUDA
DLOPEN_NOTE("cuda", "Pins host memory for NVIDIA GPUs",
            R"(\"libcudart.so.13\",\"libcudart.so.12\",\"libcudart.so.11.0\",\"libcuda.so.1\")");
#endif
#if HOSTPIN_HIP
DLOPEN_NOTE("hip", "Pins host memory for AMD GPUs",
            R"(\"libamdhip64.so.7\",\"libamdhip64.so.6\",\"libamdhip64.so.5\")");
#endif
#if HOSTPIN_LEVEL_ZERO
DLOPEN_NOTE("level-zero", "Imports host memory for Intel GPUs", R"(\"libze_loader.so.1\")");
#endif

namespace hp {

namespace {

constexpr const Backend *kList[] = {
#if HOSTPIN_CUDA
    &kCuda,
#endif
#if HOSTPIN_HIP
    &kHip,
#endif
#if HOSTPIN_LEVEL_ZERO
    &kLevelZero,
#endif
    nullptr,  // C++ has no empty arrays
};

}  // namespace

constinit const std::span<const Backend *const> built_in_backends(kList, std::size(kList) - 1);

}  // namespace hp
