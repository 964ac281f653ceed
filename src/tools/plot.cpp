#include "plot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <system_error>

#include "words.h"

namespace info {

namespace {

constexpr int kNames = 200;  // width of the column of names
constexpr int kBars = 360;   // and of the longest bar
constexpr int kRow = 30;
constexpr int kTop = 44;

// The colours are readable on white and on dark pages.
constexpr char kHead[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"14\" "
    "fill=\"#7d8590\">\n"
    "<text x=\"10\" y=\"24\" font-weight=\"bold\">Rates of pinning %s</text>\n";
constexpr char kBar[] =
    "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>"
    "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"20\" fill=\"#388bfd\"/>"
    "<text x=\"%.1f\" y=\"%d\">%.2f GiB/s</text>\n";

using File = std::unique_ptr<FILE, int (*)(FILE *)>;

void write_svg(const Rates &rates, FILE *out) {
  double most = 0;
  for (const Rate &r : rates.ways) most = std::max(most, rates.gib_per_second(r));
  std::fprintf(out, kHead, kNames + kBars + 130, kTop + kRow * static_cast<int>(rates.ways.size()),
               size_words(rates.bytes).c_str());
  int y = kTop;
  for (const Rate &r : rates.ways) {
    const double width = rates.gib_per_second(r) / most * kBars;
    std::fprintf(out, kBar, kNames - 10, y + 15, r.name, kNames, y, width, kNames + width + 8, y + 15,
                 rates.gib_per_second(r));
    y += kRow;
  }
  std::fputs("</svg>\n", out);
}

std::system_error failed(const std::string &file) {
  return std::system_error(errno, std::generic_category(), file + " cannot be written");
}

bool done(const File &out) { return std::fflush(out.get()) == 0 && !std::ferror(out.get()); }

// The converter, reading from `input`.
pid_t start_converter(const std::string &file, int input) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  std::string output = "--output=" + file;
  char name[] = "rsvg-convert";
  char background[] = "--background-color=white";
  char *arguments[] = {name, background, output.data(), nullptr};
  pid_t child = -1;
  const int code = posix_spawnp(&child, kConverter, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code) throw std::system_error(code, std::generic_category(), kConverter);
  return child;
}

void write_png(const Rates &rates, const std::string &file) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  File input(fdopen(ends[0], "r"), std::fclose);
  File out(fdopen(ends[1], "w"), std::fclose);
  if (!input || !out) throw std::bad_alloc();
  const pid_t child = start_converter(file, ends[0]);
  input.reset();
  std::signal(SIGPIPE, SIG_IGN);  // if the converter ends early, its exit status says so
  write_svg(rates, out.get());
  out.reset();
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) throw std::system_error(EIO, std::generic_category(), file + " cannot be written by rsvg-convert");
}

}  // namespace

bool has_converter() {
  const char *path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + '/' + kConverter).c_str(), X_OK) == 0) return true;
  return false;
}

void require_writable(const std::string &file) {
  int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd >= 0)
    unlink(file.c_str());  // nothing is left of it if the benchmark fails
  else if (errno == EEXIST)
    fd = open(file.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
  if (fd < 0) throw failed(file);
  close(fd);
}

void draw(const Rates &rates, const std::string &file) {
  if (file.ends_with(".png")) return write_png(rates, file);
  const File out(std::fopen(file.c_str(), "we"), std::fclose);
  if (!out) throw failed(file);
  write_svg(rates, out.get());
  if (!done(out)) throw failed(file);
}

}  // namespace info
