#include "options.h"

#include <getopt.h>

#include <cstdio>

#include "../config.h"

namespace info {

namespace {

Options wrong() {
  std::fputs("Try 'hostpin-info --help'.\n", stderr);
  Options o;
  o.action = Options::Action::wrong;
  return o;
}

bool read_pin_size(const char *text, uint64_t &bytes) {
  if (hp::parse_size(text, bytes) && bytes > 0) return true;
  std::fprintf(stderr, "hostpin-info: --pin takes a size above 0, like 64M or 1G (units K, M, G, T), not '%s'\n", text);
  return false;
}

}  // namespace

Options parse_options(int argc, char **argv) {
  enum { kPin = 1, kJson, kHelp, kVersion };
  static constexpr option kLong[] = {{"pin", required_argument, nullptr, kPin},
                                     {"json", no_argument, nullptr, kJson},
                                     {"help", no_argument, nullptr, kHelp},
                                     {"version", no_argument, nullptr, kVersion},
                                     {nullptr, 0, nullptr, 0}};
  Options o;
  for (int c; (c = getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
    switch (c) {
      case kPin:
        if (!read_pin_size(optarg, o.pin_bytes)) return wrong();
        break;
      case kJson: o.json = true; break;
      case kHelp: o.action = Options::Action::help; return o;
      case kVersion: o.action = Options::Action::version; return o;
      default: return wrong();
    }
  }
  if (optind == argc) return o;
  std::fprintf(stderr, "hostpin-info: there are no arguments but options, so not '%s'\n", argv[optind]);
  return wrong();
}

std::string help_text() {
  return "Usage: hostpin-info [--json] [--pin SIZE]\n"
         "Show how libhostpin pins host memory on this machine: the backend and the\n"
         "reason for it, devices, and the limits of the system.\n"
         "\n"
         "  --pin SIZE   pin SIZE bytes of fresh memory and show time and rate;\n"
         "               SIZE may have a unit: K, M, G or T\n"
         "  --json       print JSON for programs instead of a table\n"
         "  --help       print this and exit\n"
         "  --version    print the version and exit\n"
         "\n"
         "Exit status: 0 done (with --pin: pinned), 1 not pinned, 2 wrong usage,\n"
         "3 the library or the system failed. See hostpin-info(1).\n";
}

}  // namespace info
