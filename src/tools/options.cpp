#include "options.h"

#include <getopt.h>

#include <cstdio>

#include "../config.h"
#include "plot.h"

namespace info {

namespace {

Options wrong() {
  std::fputs("Try 'hostpin-info --help'.\n", stderr);
  Options o;
  o.action = Options::Action::wrong;
  return o;
}

bool read_size(const char *option, const char *text, uint64_t &bytes) {
  if (hp::parse_size(text, bytes) && bytes > 0) return true;
  std::fprintf(stderr, "hostpin-info: --%s takes a size above 0, like 64M or 1G (units K, M, G, T), not '%s'\n", option,
               text);
  return false;
}

bool read_plot(const std::string &file, std::string &out) {
  out = file;
  const bool png = file.ends_with(".png");
  if (file.size() <= 4 || !(png || file.ends_with(".svg"))) {
    std::fprintf(stderr, "hostpin-info: --plot draws SVG or PNG, so its file must end in .svg or .png, not '%s'\n", file.c_str());
    return false;
  }
  if (!png || has_converter()) return true;
  std::fprintf(stderr, "hostpin-info: for a PNG picture %s is needed (Debian: librsvg2-bin, Fedora: librsvg2-tools); "
               "or name a file that ends in .svg\n", kConverter);
  return false;
}

// What cannot be asked for together.
bool consistent(const Options &o) {
  if (!o.plot.empty() && !o.bench_bytes)
    std::fputs("hostpin-info: --plot needs --bench\n", stderr);
  else if (o.bench_bytes && o.pin_bytes)
    std::fputs("hostpin-info: --bench and --pin do not go together\n", stderr);
  else
    return true;
  return false;
}

}  // namespace

Options parse_options(int argc, char **argv) {
  enum { kPin = 1, kBench, kPlot, kJson, kHelp, kVersion };
  static constexpr option kLong[] = {{"pin", required_argument, nullptr, kPin},
                                     {"bench", required_argument, nullptr, kBench},
                                     {"plot", required_argument, nullptr, kPlot},
                                     {"json", no_argument, nullptr, kJson},
                                     {"help", no_argument, nullptr, kHelp},
                                     {"version", no_argument, nullptr, kVersion},
                                     {nullptr, 0, nullptr, 0}};
  Options o;
  for (int c; (c = getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
    switch (c) {
      case kPin:
        if (!read_size("pin", optarg, o.pin_bytes)) return wrong();
        break;
      case kBench:
        if (!read_size("bench", optarg, o.bench_bytes)) return wrong();
        break;
      case kPlot:
        if (!read_plot(optarg, o.plot)) return wrong();
        break;
      case kJson: o.json = true; break;
      case kHelp: o.action = Options::Action::help; return o;
      case kVersion: o.action = Options::Action::version; return o;
      default: return wrong();
    }
  }
  if (optind == argc) return consistent(o) ? o : wrong();
  std::fprintf(stderr, "hostpin-info: there are no arguments but options, so not '%s'\n", argv[optind]);
  return wrong();
}

std::string help_text() {
  return "Usage: hostpin-info [--json] [--pin SIZE | --bench SIZE [--plot FILE]]\n"
         "Show how libhostpin pins host memory on this machine: the backend and the\n"
         "reason for it, devices, and the limits of the system.\n"
         "\n"
         "  --pin SIZE   pin SIZE bytes of fresh memory and show time and rate;\n"
         "               SIZE may have a unit: K, M, G or T\n"
         "  --bench SIZE pin SIZE bytes in different ways, and show how fast each is\n"
         "  --plot FILE  with --bench: draw that, too; FILE ends in .svg or .png\n"
         "  --json       print JSON for programs instead of a table\n"
         "  --help       print this and exit\n"
         "  --version    print the version and exit\n"
         "\n"
         "Exit status: 0 done (with --pin, --bench: pinned), 1 not pinned, 2 wrong usage,\n"
         "3 the library or the system failed. See hostpin-info(1).\n";
}

}  // namespace info
