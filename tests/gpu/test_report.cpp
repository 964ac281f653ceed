// The judgement over a table: when a row agrees, and when the whole is good.
#include "report.h"

#include "../unit/catch.h"

using namespace gpu;

namespace {

const std::vector<Subject> simulated_and_real = [] {
    std::vector<Subject> subjects(2);
    subjects[0].simulated = true;
    subjects[0].major = subjects[1].major = 13;
    return subjects;
}();

constexpr Behaviour plain{"plain", "", always("0"), source::assumed, nullptr};
constexpr Behaviour designed{"designed", "", unlike_simulation(always("1"), always("0"), "on purpose"), source::assumed,
                             nullptr};

Row row(const Behaviour &behaviour, const char *simulated, const char *real) {
    const Device device;
    return {behaviour.id, &behaviour,
            {{simulated, behaviour.expected.simulated.on(device)}, {real, behaviour.expected.real.on(device)}}};
}

void check(const Behaviour &behaviour, const char *simulated, const char *real, std::string_view agreement, bool good) {
    Report report(simulated_and_real);
    report.add(row(behaviour, simulated, real));
    INFO(behaviour.id << ": simulated " << simulated << ", real " << real);
    CHECK(report.agreement(row(behaviour, simulated, real)) == agreement);
    CHECK(report.good() == good);
}

} // namespace

TEST_CASE("A row agrees when both answers are the expected one") {
    check(plain, "0", "0", "yes", true);
    check(plain, "0", "712", "no", false);
    check(plain, "712", "0", "no", false);
    check(plain, "712", "712", "no", false);
}

TEST_CASE("What could not be tried is not held against anyone") {
    check(plain, "0", "n/a: one device", "yes", true);
    check(plain, "n/a: one device", "n/a: one device", "-", true);
    check(plain, "n/a: one device", "712", "no", false);
}

TEST_CASE("A difference on purpose is named as such, and only that one is taken") {
    check(designed, "0", "1", "by design", true);
    check(designed, "0", "0", "no", false);
    check(designed, "1", "1", "no", false);
}

TEST_CASE("Real and simulated runtimes of different major versions are not compared") {
    std::vector<Subject> subjects = simulated_and_real;
    subjects[0].major = 12;
    const Behaviour versioned{"versioned", "", depending(set_device_creates_context, "1", "0"), source::assumed, nullptr};
    Report report(subjects);
    const Row apart{"versioned", &versioned, {{"0", "0"}, {"1", "1"}}};
    report.add(apart);
    CHECK(report.agreement(apart) == std::string_view("yes"));
    CHECK(report.good());
}

TEST_CASE("Real and simulated runtimes of one major version are compared even where each is as expected of its device") {
    Report report(simulated_and_real);
    const Row apart{"plain", &plain, {{"0", "0"}, {"1", "1"}}};
    report.add(apart);
    CHECK(report.agreement(apart) == std::string_view("no"));
    CHECK_FALSE(report.good());
}

TEST_CASE("One bad row makes the whole bad") {
    Report report(simulated_and_real);
    report.add(row(plain, "0", "0"));
    CHECK(report.good());
    report.add(row(plain, "0", "1"));
    CHECK_FALSE(report.good());
}
