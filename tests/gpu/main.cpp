// hostpin-gpu-check: compares what the simulated CUDA runtimes and libhostpin do with a real runtime. See README.md.
#include "rates.h"
#include "report.h"

#include <getopt.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>

namespace {

using namespace gpu;

constexpr const char *usage = R"(usage: hostpin-gpu-check [--simulated DIR] [--real [--runtime FILE]...] [OPTION]...

  --simulated DIR   look at the simulated runtimes in DIR (cudart13, cudart12, cudart11 and cuda below it); with --real
                    only at those of the same major versions
  --real            look at the real runtimes, and compare
  --runtime FILE    a real libcudart, instead of libcudart.so.13, .12 and .11.0 as the loader finds them
  --driver FILE     a real libcuda, instead of libcuda.so.1 as the loader finds it
  --hostpin FILE    the libhostpin to look at; otherwise only the vendor's calls are
  --only ID         only behaviours whose id begins with ID
  --rates[=SIZE]    also measure rates on the first real runtime, up to SIZE MiB (4096)
  --markdown FILE, --json FILE   write the tables there too
  --timeout N       seconds that one behaviour may take (120)
  --list            print the behaviours and do nothing
  --verbose         let the vendor's and libhostpin's messages through

exit status: 0 all is as expected and alike, 1 something is not, 2 it could not be tried
)";

struct Options {
    std::string simulated, only, markdown, json, one;
    bool real = false, verbose = false, list = false, describe = false, load_simulated = false;
    std::vector<std::string> runtimes;
    Files files{"", "libcuda.so.1", ""};
    std::size_t rates_mib = 0, measure_mib = 0;
    int seconds = 120;
};

// The last ones are for this program's own children.
Options parse(int argc, char **argv) {
    const option known[] = {{"simulated", required_argument, nullptr, 's'}, {"real", no_argument, nullptr, 'r'},
                            {"runtime", required_argument, nullptr, 'c'},   {"driver", required_argument, nullptr, 'd'},
                            {"hostpin", required_argument, nullptr, 'h'},   {"only", required_argument, nullptr, 'i'},
                            {"rates", optional_argument, nullptr, 'p'},     {"markdown", required_argument, nullptr, 'm'},
                            {"json", required_argument, nullptr, 'j'},      {"list", no_argument, nullptr, 'l'},
                            {"timeout", required_argument, nullptr, 't'},
                            {"verbose", no_argument, nullptr, 'v'},         {"one", required_argument, nullptr, '1'},
                            {"describe", no_argument, nullptr, '2'},        {"measure", required_argument, nullptr, '3'},
                            {"load-runtime", required_argument, nullptr, '4'},
                            {"load-driver", required_argument, nullptr, '5'},
                            {"load-simulated", no_argument, nullptr, '6'},  {nullptr, 0, nullptr, 0}};
    Options options;
    opterr = 0;
    for (int letter; (letter = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        switch (letter) {
        case 's': options.simulated = optarg; break;
        case 'r': options.real = true; break;
        case 'c': options.runtimes.push_back(optarg); break;
        case 'd':
        case '5': options.files.driver = optarg; break;
        case 'h': options.files.hostpin = optarg; break;
        case 'i': options.only = optarg; break;
        case 'p': options.rates_mib = optarg ? std::stoul(optarg) : 4096; break;
        case 'm': options.markdown = optarg; break;
        case 'j': options.json = optarg; break;
        case 'l': options.list = true; break;
        case 't': options.seconds = std::stoi(optarg); break;
        case 'v': options.verbose = true; break;
        case '1': options.one = optarg; break;
        case '2': options.describe = true; break;
        case '3': options.measure_mib = std::stoul(optarg); break;
        case '4': options.files.runtime = optarg; break;
        case '6': options.load_simulated = true; break;
        default: throw std::invalid_argument(std::string("cannot take ") + argv[optind - 1]);
        }
    }
    if (optind < argc) throw std::invalid_argument(std::string("unknown argument ") + argv[optind]);
    return options;
}

std::vector<const Behaviour *> behaviours_of(std::initializer_list<std::span<const Behaviour>> groups) {
    std::vector<const Behaviour *> all;
    for (const auto &group : groups)
        for (const Behaviour &behaviour : group) all.push_back(&behaviour);
    return all;
}

std::vector<const Behaviour *> vendor_behaviours() {
    return behaviours_of({registering_behaviours(), mapping_behaviours(), error_behaviours(), context_behaviours(),
                          capture_behaviours(), access_behaviours()});
}

std::vector<const Behaviour *> hostpin_behaviours() { return behaviours_of({pin_behaviours(), process_behaviours()}); }

// ---- In a child

std::string run_here(const std::string &id, const Libraries &lib) {
    for (const auto &all : {vendor_behaviours(), hostpin_behaviours()})
        for (const Behaviour *behaviour : all)
            if (behaviour->id == id) return behaviour->run(lib);
    throw std::invalid_argument("no behaviour " + id);
}

int be_child(const Options &options) {
    keep_stdout_for_answer();
    try {
        Libraries lib = load(options.files);
        lib.simulated = options.load_simulated;
        if (options.describe) say(describe(lib));
        else if (options.measure_mib) say(measure(lib, options.measure_mib << 20));
        else say(run_here(options.one, lib));
    } catch (const NotApplicable &reason) {
        say(std::string("n/a: ") + reason.what());
    } catch (const std::exception &problem) {
        say((options.one.empty() ? "" : "failed: ") + std::string(problem.what()));
    }
    return 0;
}

// ---- In the parent

std::vector<Subject> subjects_of(const Options &options) {
    std::vector<Subject> real, all;
    if (options.real) {
        std::vector<std::string> runtimes = options.runtimes;
        if (runtimes.empty()) runtimes = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
        real = real_subjects(runtimes, options.files.driver, options.files.hostpin);
    }
    if (!options.simulated.empty()) all = simulated_subjects(options.simulated, options.files.hostpin);
    if (options.real) {
        std::erase_if(all, [&](const Subject &s) { return std::ranges::count(real, s.major, &Subject::major) == 0; });
        for (Subject &subject : all) imitate(subject, std::ranges::find(real, subject.major, &Subject::major)->device);
    }
    all.insert(all.end(), real.begin(), real.end());
    for (Subject &subject : all) subject.seconds = options.seconds;
    return all;
}

Row row_of(const Behaviour &behaviour, const std::string &suffix, const std::vector<Subject> &subjects, Way way,
           bool quiet) {
    Row row{behaviour.id + suffix, &behaviour, {}};
    for (const Subject &subject : subjects) {
        const Answer &expected = subject.simulated ? behaviour.expected.simulated : behaviour.expected.real;
        row.cells.push_back({try_behaviour(subject, behaviour.id, way, quiet), expected.on(subject.device)});
    }
    return row;
}

Report look(const Options &options, const std::vector<Subject> &subjects) {
    Report report(subjects);
    if (options.only.starts_with("hp-") && options.files.hostpin.empty())
        throw std::invalid_argument(options.only + " needs --hostpin");
    const auto wanted = [&](const Behaviour *b) { return std::string_view(b->id).starts_with(options.only); };
    for (const Behaviour *behaviour : vendor_behaviours())
        if (wanted(behaviour)) report.add(row_of(*behaviour, "", subjects, Way::none, !options.verbose));
    if (options.files.hostpin.empty()) return report;
    for (const auto &[way, suffix] : {std::pair{Way::runtime, " by cudart"}, std::pair{Way::driver, " by libcuda"}})
        for (const Behaviour *behaviour : hostpin_behaviours())
            if (wanted(behaviour)) report.add(row_of(*behaviour, suffix, subjects, way, !options.verbose));
    return report;
}

std::string rates_of(const Options &options, const std::vector<Subject> &subjects) {
    const auto real = std::ranges::find(subjects, false, &Subject::simulated);
    if (real == subjects.end() || options.files.hostpin.empty())
        throw std::invalid_argument("--rates needs --real and --hostpin");
    Child child = child_for(*real, Way::runtime, {"--measure", std::to_string(options.rates_mib)});
    child.quiet = !options.verbose;
    child.seconds = 1200;
    const std::string rates = run(child), problem = problem_of(rates);
    if (!problem.empty()) throw std::runtime_error("rates: " + problem);
    return rates;
}

std::ofstream open_for_writing(const std::string &file) {
    std::ofstream out(file);
    if (!out) throw std::runtime_error(file + ": " + std::strerror(errno));
    return out;
}

int be_parent(const Options &options) {
    const std::vector<Subject> subjects = subjects_of(options);
    if (subjects.empty()) throw std::invalid_argument("nothing to look at: give --simulated or --real");
    const Report report = look(options, subjects);
    if (report.empty()) throw std::invalid_argument("no behaviour begins with " + options.only);
    report.print(std::cout);
    std::string rates;
    if (options.rates_mib) {
        rates = rates_of(options, subjects);
        print_rates(std::cout, rates);
    }
    if (!options.markdown.empty()) {
        std::ofstream out = open_for_writing(options.markdown);
        report.print_markdown(out);
        if (!rates.empty()) print_rates_markdown(out, rates);
    }
    if (!options.json.empty()) {
        std::ofstream out = open_for_writing(options.json);
        report.print_json(out, rates);
    }
    return report.good() ? 0 : 1;
}

void list() {
    for (const auto &all : {vendor_behaviours(), hostpin_behaviours()})
        for (const Behaviour *behaviour : all) std::cout << behaviour->id << '\t' << behaviour->what << '\n';
}

} // namespace

int main(int argc, char **argv) try {
    const Options options = parse(argc, argv);
    if (!options.one.empty() || options.describe || options.measure_mib) return be_child(options);
    if (options.list) return list(), 0;
    return be_parent(options);
} catch (const std::invalid_argument &problem) {
    std::cerr << "hostpin-gpu-check: " << problem.what() << '\n' << usage;
    return 2;
} catch (const std::exception &problem) {
    std::cerr << "hostpin-gpu-check: " << problem.what() << '\n';
    return 2;
}
