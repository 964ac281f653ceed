#include "plot.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
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

}  // namespace

void draw(const Rates &rates, const std::string &file) {
  const auto failed = [&] { return std::system_error(errno, std::generic_category(), file + " cannot be written"); };
  const std::unique_ptr<FILE, int (*)(FILE *)> out(std::fopen(file.c_str(), "we"), std::fclose);
  if (!out) throw failed();
  double most = 0;
  for (const Rate &r : rates.ways) most = std::max(most, rates.gib_per_second(r));
  std::fprintf(out.get(), kHead, kNames + kBars + 130, kTop + kRow * static_cast<int>(rates.ways.size()),
               size_words(rates.bytes).c_str());
  int y = kTop;
  for (const Rate &r : rates.ways) {
    const double width = rates.gib_per_second(r) / most * kBars;
    std::fprintf(out.get(), kBar, kNames - 10, y + 15, r.name, kNames, y, width, kNames + width + 8, y + 15,
                 rates.gib_per_second(r));
    y += kRow;
  }
  std::fputs("</svg>\n", out.get());
  if (std::fflush(out.get()) != 0 || std::ferror(out.get())) throw failed();
}

}  // namespace info
