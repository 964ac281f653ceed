#include "report.h"

#include <nlohmann/json.hpp>

#include <sys/utsname.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <ostream>
#include <sstream>

namespace gpu {

namespace {

std::string version(int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string first_line(const char *file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
}

std::string name_of(const std::string &path) { return path.substr(path.rfind('/') + 1); }

} // namespace

std::string identity(const Subject &subject) {
    std::ostringstream text;
    text << subject.title() << ": " << name_of(subject.files.runtime) << ", CUDA " << version(subject.device.runtime_version)
         << ", driver for CUDA " << version(subject.device.driver_version) << ", " << subject.device.count << " x "
         << (subject.device.name.empty() ? "device" : subject.device.name) << "; attributes";
    for (const auto &[number, value] : subject.device.attributes) text << ' ' << number << '=' << value;
    return text.str();
}

std::string machine() {
    utsname system{};
    uname(&system);
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    const std::string driver = first_line("/proc/driver/nvidia/version");
    std::ostringstream text;
    text << std::put_time(&utc, "%Y-%m-%d") << ", " << system.sysname << ' ' << system.release << ' '
         << system.machine << ", " << (driver.empty() ? "no NVIDIA kernel module" : driver);
    return text.str();
}

const char *Report::agreement(const Row &row) const {
    if (!std::ranges::all_of(row.cells, &Cell::as_expected)) return "no";
    if (std::ranges::all_of(row.cells, &Cell::not_applicable)) return "-";
    bool alike = true;
    for (std::size_t real = 0; real < subjects_.size(); ++real)
        for (std::size_t other = 0; other < subjects_.size(); ++other)
            alike &= subjects_[real].simulated || !differ(row, real, other);
    if (alike) return "yes";
    return row.behaviour->expected.difference ? "by design" : "no";
}

bool Report::differ(const Row &row, std::size_t real, std::size_t other) const {
    if (!subjects_[other].simulated || subjects_[other].major != subjects_[real].major) return false;
    if (row.cells[real].not_applicable() || row.cells[other].not_applicable()) return false;
    return row.cells[real].answer != row.cells[other].answer;
}

std::string Report::complaint(const Row &row) const {
    std::string text;
    for (std::size_t i = 0; i < subjects_.size(); ++i) {
        const Cell &cell = row.cells[i];
        if (!cell.as_expected())
            text += "  " + row.id + ", " + subjects_[i].title() + ": \"" + cell.answer + "\", expected \"" +
                    cell.expected + "\" (" + row.behaviour->source + ")\n";
    }
    if (text.empty() && agreement(row) == std::string_view("no")) text += "  " + row.id + ": real and simulated differ\n";
    return text;
}

bool Report::good() const {
    return std::ranges::all_of(rows_, [this](const Row &row) { return complaint(row).empty(); });
}

void Report::print(std::ostream &out) const {
    std::vector<std::size_t> widths(subjects_.size());
    std::size_t id_width = 9;
    for (std::size_t i = 0; i < subjects_.size(); ++i) widths[i] = subjects_[i].title().size();
    for (const Row &row : rows_) {
        id_width = std::max(id_width, row.id.size());
        for (std::size_t i = 0; i < row.cells.size(); ++i) widths[i] = std::max(widths[i], row.cells[i].answer.size());
    }
    const auto column = [&out](const std::string &text, std::size_t width) {
        out << std::left << std::setw(static_cast<int>(width + 2)) << text;
    };
    out << machine() << '\n';
    for (const Subject &subject : subjects_) out << identity(subject) << "; " << subject.files.runtime << '\n';
    out << '\n';
    column("behaviour", id_width);
    for (std::size_t i = 0; i < subjects_.size(); ++i) column(subjects_[i].title(), widths[i]);
    out << "agree\n";
    for (const Row &row : rows_) {
        column(row.id, id_width);
        for (std::size_t i = 0; i < row.cells.size(); ++i) column(row.cells[i].answer, widths[i]);
        out << agreement(row) << '\n';
    }
    std::string complaints;
    for (const Row &row : rows_) complaints += complaint(row);
    out << '\n' << (complaints.empty() ? "all as expected\n" : "not as expected:\n" + complaints);
}

void Report::print_markdown(std::ostream &out) const {
    out << machine() << "\n\n";
    for (const Subject &subject : subjects_) out << "- " << identity(subject) << '\n';
    out << "\n| behaviour | id | expected | source |";
    for (const Subject &subject : subjects_) out << ' ' << subject.title() << " |";
    out << " agree |\n| --- | --- | --- | --- |";
    for (std::size_t i = 0; i < subjects_.size(); ++i) out << " --- |";
    out << " --- |\n";
    for (const Row &row : rows_) {
        // What is expected of the real one, where the two differ.
        const auto real = std::ranges::find(subjects_, false, &Subject::simulated);
        const auto index = real == subjects_.end() ? 0 : static_cast<std::size_t>(real - subjects_.begin());
        out << "| " << row.behaviour->what << " | `" << row.id << "` | " << row.cells[index].expected << " | "
            << row.behaviour->source << " |";
        for (const Cell &cell : row.cells) {
            const bool good = cell.as_expected();
            out << (good ? " " : " **") << cell.answer << (good ? " |" : "** |");
        }
        out << ' ' << agreement(row) << " |\n";
    }
    std::string differences;
    for (const Row &row : rows_)
        if (agreement(row) == std::string_view("by design"))
            differences += "- `" + row.id + "`: " + row.behaviour->expected.difference + "\n";
    if (!differences.empty()) out << "\nWhere the simulation differs by design:\n\n" << differences;
}

void Report::print_json(std::ostream &out, const std::string &rates) const {
    using nlohmann::json;
    json all{{"machine", machine()}, {"good", good()}, {"subjects", json::array()}, {"behaviours", json::array()}};
    for (const Subject &subject : subjects_)
        all["subjects"].push_back({{"title", subject.title()}, {"simulated", subject.simulated},
                                   {"major", subject.major}, {"identity", identity(subject)}});
    for (const Row &row : rows_) {
        json one{{"id", row.id}, {"what", row.behaviour->what}, {"source", row.behaviour->source},
                 {"agree", agreement(row)}};
        if (row.behaviour->expected.difference) one["difference"] = row.behaviour->expected.difference;
        for (std::size_t i = 0; i < row.cells.size(); ++i)
            one["answers"][subjects_[i].title()] = {{"answer", row.cells[i].answer},
                                                    {"expected", row.cells[i].expected},
                                                    {"good", row.cells[i].as_expected()}};
        all["behaviours"].push_back(one);
    }
    if (!rates.empty()) all["rates"] = json::parse(rates);
    out << all.dump(2) << '\n';
}

} // namespace gpu
