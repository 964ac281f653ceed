// One runtime that is looked at: a simulated or a real libcudart of some major version, with its driver.
#pragma once

#include "behaviour.h"
#include "child.h"

#include <string>
#include <vector>

namespace gpu {

struct Subject {
    bool simulated = false;
    int major = 0;
    Files files;
    Device device;
    std::map<std::string, std::string> environment;
    int seconds = 120; // that one behaviour may take

    std::string title() const { return (simulated ? "simulated " : "real ") + std::to_string(major); }
};

// Simulated runtimes that lie in a folder as cudart11, cudart12, cudart13 with cuda beside them.
std::vector<Subject> simulated_subjects(const std::string &folder, const std::string &hostpin);

// The runtimes of these files or names, where they can be loaded and see a device. Throws std::runtime_error, with the
// reason of each, when there is none.
std::vector<Subject> real_subjects(const std::vector<std::string> &runtimes, const std::string &driver,
                                   const std::string &hostpin);

// Gives the simulated device the attributes of a real one, so that they can be compared.
void imitate(Subject &simulated, const Device &device);

// Which way libhostpin is told to take.
enum class Way { none, runtime, driver };

// One behaviour of it, tried in a process of its own.
std::string try_behaviour(const Subject &subject, const std::string &id, Way way, bool quiet);

// In the child: the facts of the device for the process that asked, or what is wrong with it.
std::string describe(const Libraries &lib);

// The child that runs this program with further arguments on the subject.
Child child_for(const Subject &subject, Way way, std::vector<std::string> arguments);

} // namespace gpu
