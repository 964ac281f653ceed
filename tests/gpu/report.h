// The table of behaviours, as text, Markdown and JSON, and the judgement over it.
#pragma once

#include "subject.h"

#include <iosfwd>
#include <string>
#include <vector>

namespace gpu {

// What one subject answered, and what was expected of it.
struct Cell {
    std::string answer;
    std::string expected;

    bool not_applicable() const { return answer.starts_with("n/a"); }
    bool as_expected() const { return not_applicable() || answer == expected; }
};

struct Row {
    std::string id; // of the behaviour, with the way that libhostpin took behind it
    const Behaviour *behaviour;
    std::vector<Cell> cells; // one for each subject
};

class Report {
public:
    explicit Report(std::vector<Subject> subjects) : subjects_(std::move(subjects)) {}

    void add(Row row) { rows_.push_back(std::move(row)); }
    bool empty() const { return rows_.empty(); }

    // Every answer as expected, and every real runtime like the simulated one of its major version.
    bool good() const;

    void print(std::ostream &out) const;
    void print_markdown(std::ostream &out) const;
    // `rates`: a JSON text to go with it, or "".
    void print_json(std::ostream &out, const std::string &rates) const;

    // "yes": as expected and alike; "no"; "by design" where the simulation differs on purpose; "-": tried nowhere.
    const char *agreement(const Row &row) const;

private:
    bool differ(const Row &row, std::size_t real, std::size_t other) const;
    // What is wrong, in words; "" where nothing is.
    std::string complaint(const Row &row) const;

    std::vector<Subject> subjects_;
    std::vector<Row> rows_;
};

// A line that identifies the subject on any machine: its file's name, versions, device and attributes.
std::string identity(const Subject &subject);

// The machine around it: date, kernel, and the version line of the vendor's kernel module where there is one.
std::string machine();

} // namespace gpu
