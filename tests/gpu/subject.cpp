#include "subject.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <sstream>
#include <stdexcept>

namespace gpu {

namespace {

namespace fs = std::filesystem;

constexpr int attributes[] = {attribute_pageable_access, attribute_host_address, attribute_register,
                              attribute_host_tables, attribute_read_only};

// Fills in what the runtime says of its device; false, with the reason, when there is none to work with.
bool ask_for_device(Subject &subject, std::string &reason) {
    std::istringstream said(run(child_for(subject, Way::none, {"--describe"})));
    std::string word;
    if (!(said >> word) || word != "device") {
        reason = said.str();
        return false;
    }
    Device &device = subject.device;
    said >> device.count >> device.runtime_version >> device.driver_version;
    for (const int number : attributes) said >> device.attributes[number];
    std::getline(said >> std::ws, subject.files.runtime);
    std::getline(said, device.name);
    subject.major = device.runtime_version / 1000;
    return true;
}

} // namespace

Child child_for(const Subject &subject, Way way, std::vector<std::string> arguments) {
    Child child;
    child.arguments = std::move(arguments);
    child.arguments.insert(child.arguments.end(), {"--load-runtime", subject.files.runtime, "--load-driver",
                                                   subject.files.driver});
    if (subject.simulated) child.arguments.push_back("--load-simulated");
    if (way != Way::none) child.arguments.insert(child.arguments.end(), {"--hostpin", subject.files.hostpin});
    child.environment = subject.environment;
    child.seconds = subject.seconds;
    // What a user has configured must not change what is being looked at.
    for (const char *name : {"HOSTPIN_MAX_SEGMENT", "HOSTPIN_BUDGET", "HOSTPIN_CUDART", "HOSTPIN_CUDA_DRIVER"})
        child.environment[name] = "";
    child.environment["HOSTPIN_BACKEND"] = "cuda";
    if (way == Way::runtime) child.environment["HOSTPIN_CUDART"] = subject.files.runtime;
    if (way == Way::driver) child.environment["HOSTPIN_CUDA_DRIVER"] = subject.files.driver;
    return child;
}

std::vector<Subject> simulated_subjects(const std::string &folder, const std::string &hostpin) {
    const std::pair<const char *, const char *> places[] = {{"cudart13", "libcudart.so.13"},
                                                            {"cudart12", "libcudart.so.12"},
                                                            {"cudart11", "libcudart.so.11.0"}};
    const fs::path root = fs::absolute(folder);
    std::vector<Subject> subjects;
    for (const auto &[name, file] : places) {
        Subject subject;
        subject.simulated = true;
        subject.files = {root / name / file, root / "cuda" / "libcuda.so.1", hostpin};
        if (!fs::exists(subject.files.runtime)) continue;
        std::string reason;
        if (!ask_for_device(subject, reason)) throw std::runtime_error(subject.files.runtime + ": " + reason);
        subjects.push_back(subject);
    }
    if (subjects.empty()) throw std::runtime_error(folder + ": no simulated runtime in cudart13, cudart12 or cudart11");
    return subjects;
}

std::vector<Subject> real_subjects(const std::vector<std::string> &runtimes, const std::string &driver,
                                   const std::string &hostpin) {
    std::vector<Subject> subjects;
    std::string reasons;
    for (const std::string &runtime : runtimes) {
        Subject subject;
        subject.files = {runtime, driver, hostpin};
        std::string reason;
        if (ask_for_device(subject, reason)) subjects.push_back(subject);
        else reasons += "\n  " + runtime + ": " + reason;
    }
    if (subjects.empty()) throw std::runtime_error("no CUDA runtime here sees a device:" + reasons);
    return subjects;
}

void imitate(Subject &simulated, const Device &device) {
    std::string script;
    if (const char *given = std::getenv("HOSTPIN_SIM")) script = given;
    for (const int number : attributes)
        script += ",attribute=" + std::to_string(number) + ":" + std::to_string(device.attribute(number));
    script += ",driver_version=" + std::to_string(device.driver_version);
    script += ",devices=" + std::to_string(std::min(device.count, 16)); // no more are simulated
    // Attribute 91 alone would not make the addresses differ, nor the driver's version the limit.
    if (!uses_host_address(device)) script += ",device_offset=1T";
    if (!refuses_512_gib(device)) script += ",max_call=1024T";
    simulated.environment["HOSTPIN_SIM"] = script;
    simulated.device.attributes = device.attributes;
    simulated.device.driver_version = device.driver_version;
    simulated.device.count = device.count;
}

std::string try_behaviour(const Subject &subject, const std::string &id, Way way, bool quiet) {
    Child child = child_for(subject, way, {"--one", id});
    child.quiet = quiet;
    return run(child);
}

std::string describe(const Libraries &lib) {
    int count = 0, driver = 0;
    if (const int code = lib.runtime.get_device_count(&count); code || count == 0)
        return "cudaGetDeviceCount answers " + std::to_string(code) + " (" + lib.runtime.get_error_name(code) +
               ") and counts " + std::to_string(count);
    lib.runtime.driver_get_version(&driver);
    char name[100] = "";
    lib.driver.init(0);
    if (lib.driver.device_get_name) lib.driver.device_get_name(name, sizeof name, 0);
    std::ostringstream facts;
    facts << "device " << count << ' ' << runtime_version(lib) << ' ' << driver;
    for (const int number : attributes) {
        int value = 0;
        lib.runtime.device_get_attribute(&value, number, 0);
        facts << ' ' << value;
    }
    facts << '\n' << runtime_file(lib) << '\n' << name << '\n';
    return facts.str();
}

} // namespace gpu
