// Running this program once more, for one behaviour: a crash or a sticky error there reaches nothing else.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace gpu {

struct Child {
    std::vector<std::string> arguments;                // of this same program
    std::map<std::string, std::string> environment;    // beside what is there; an empty value removes
    bool quiet = true;                                 // its stderr is dropped
    int seconds = 0;                                   // then it is killed
};

// What it wrote with say(), and how it ended where that was not in peace: "0 712", "abort", "timeout", "0, then SIGSEGV".
std::string run(const Child &child);

// In the child: everything else that is printed goes to stderr. To be called first.
void keep_stdout_for_answer();
void say(const std::string &answer);

// "exit N" or the signal's name, of a status of waitpid.
std::string end_of(int status);

} // namespace gpu
