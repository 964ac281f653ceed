// HP_REGISTER_DONTFORK: which pages a forked child has while they are registered, and after.
#include "scenario.h"

#include <string>

namespace {

using namespace scenario;

constexpr uint32_t kept_out = HP_REGISTER_DONTFORK | HP_REGISTER_REQUIRED;
constexpr std::size_t pages = 16;

// Which pages of the memory a child forked now has: one letter each.
std::string in_a_child_forked_now(char *memory) {
  const Outcome outcome = in_child([memory] {
    for (std::size_t i = 0; i < pages; ++i) {
      unsigned char present = 0;
      const bool mapped = mincore(memory + i * page, page, &present) == 0;
      CHECK(mapped || errno == ENOMEM);
      CHECK(!mapped || memory[i * page] == 1);
      CHECK(write(STDOUT_FILENO, mapped ? "x" : ".", 1) == 1);
    }
  });
  CHECK(outcome.returned(0));
  return outcome.output;
}

// Compared as text, so that a failure shows both.
void check_child(char *memory, const char *expected) {
  const std::string found = in_a_child_forked_now(memory);
  if (found != expected) real::fail(__FILE__, __LINE__, "the child has", found + ", not " + expected);
}

constexpr const char *everything = "xxxxxxxxxxxxxxxx";

char *fresh_memory() {
  use(cudart12);
  return map_memory(pages * page);
}

void pages_are_absent_until_the_end() {
  char *memory = fresh_memory();
  check_child(memory, everything);
  CHECK_EQUAL(hp_register(memory + 2 * page, 3 * page, kept_out), HP_OK);
  check_child(memory, "xx...xxxxxxxxxxx");
  CHECK_EQUAL(memory[2 * page], 1);  // the parent has them
  CHECK_EQUAL(hp_register(memory + 2 * page, 3 * page, kept_out), HP_OK);
  CHECK_EQUAL(hp_unregister(memory + 2 * page), HP_OK);
  check_child(memory, "xx...xxxxxxxxxxx");  // counted
  CHECK_EQUAL(hp_unregister(memory + 2 * page), HP_OK);
  check_child(memory, everything);
}

void only_when_asked_for() {
  char *memory = fresh_memory();
  CHECK_EQUAL(hp_register(memory, 4 * page, HP_REGISTER_REQUIRED), HP_OK);
  check_child(memory, everything);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

// A page of which a part is somebody else's stays.
void whole_pages_only() {
  char *memory = fresh_memory();
  CHECK_EQUAL(hp_register(memory + 1, 4 * page, kept_out), HP_OK);
  check_child(memory, "x...xxxxxxxxxxxx");
  CHECK_EQUAL(hp_register(memory + 6 * page + 1, page - 2, kept_out), HP_OK);
  CHECK_EQUAL(hp_register(memory + 8 * page + 1, 2 * page - 2, kept_out), HP_OK);
  CHECK_EQUAL(hp_register(memory + 12 * page, page - 1, kept_out), HP_OK);
  check_child(memory, "x...xxxxxxxxxxxx");
  for (std::size_t at : {std::size_t{1}, 6 * page + 1, 8 * page + 1, 12 * page}) CHECK_EQUAL(hp_unregister(memory + at), HP_OK);
  check_child(memory, everything);
}

void overlapping_registrations() {
  char *memory = fresh_memory();
  CHECK_EQUAL(hp_register(memory, 6 * page, kept_out), HP_OK);
  CHECK_EQUAL(hp_register(memory + 4 * page, 6 * page, kept_out), HP_OK);
  CHECK_EQUAL(hp_register(memory + 5 * page, 8 * page, HP_REGISTER_REQUIRED), HP_OK);  // does not ask for it
  check_child(memory, "..........xxxxxx");
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  check_child(memory, "xxxx......xxxxxx");
  CHECK_EQUAL(hp_unregister(memory + 4 * page), HP_OK);
  check_child(memory, everything);
  CHECK_EQUAL(hp_unregister(memory + 5 * page), HP_OK);
  CHECK_EQUAL(hps_live_registrations(), 0);
}

void one_within_another() {
  char *memory = fresh_memory();
  CHECK_EQUAL(hp_register(memory + 4 * page, 2 * page, kept_out), HP_OK);
  CHECK_EQUAL(hp_register(memory, 10 * page, kept_out), HP_OK);
  check_child(memory, "..........xxxxxx");
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  check_child(memory, "xxxx..xxxxxxxxxx");
  CHECK_EQUAL(hp_unregister(memory + 4 * page), HP_OK);
  check_child(memory, everything);
}

void ranges_and_their_gaps() {
  char *memory = fresh_memory();
  // The second and third make up pages 5 to 7 together; between the others there are gaps.
  const hp_range ranges[] = {{0, 2 * page}, {5 * page, 6 * page + 9}, {6 * page + 9, 8 * page}, {10 * page + 1, 12 * page}};
  CHECK_EQUAL(hp_register_ranges(memory, ranges, 4, kept_out), HP_OK);
  check_child(memory, "..xxx...xxx.xxxx");
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  check_child(memory, everything);
}

void refused_registration() {
  char *memory = fresh_memory();
  hps_script("fail=register:*:801");
  CHECK_EQUAL(hp_register(memory, 4 * page, kept_out), HP_E_REFUSED);
  check_child(memory, everything);
}

void failed_release() {
  char *memory = fresh_memory();
  CHECK_EQUAL(hp_register(memory, 4 * page, kept_out), HP_OK);
  hps_script("fail=unregister:1:801");
  CapturedStderr hidden;
  CHECK_EQUAL(hp_unregister(memory), HP_E_STUCK);
  check_child(memory, everything);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

void unregister_all_ends_it() {
  char *memory = fresh_memory();
  for (int i = 0; i < 3; ++i) CHECK_EQUAL(hp_register(memory, 4 * page, kept_out), HP_OK);
  CHECK_EQUAL(hp_register(memory + 2 * page, 6 * page, kept_out), HP_OK);
  check_child(memory, "........xxxxxxxx");
  CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK);
  check_child(memory, everything);
}

int32_t run_job(char *memory, const hp_range &range, uint32_t flags, uint32_t keep) {
  hp_job_options options{};
  options.struct_size = sizeof options;
  options.keep = keep;
  options.chunk_bytes = 2 * page;
  hp_job *job = nullptr;
  CHECK_EQUAL(hp_register_start(memory, &range, 1, flags, &options, &job), HP_OK);
  const int32_t status = hp_job_wait(job, UINT64_MAX);
  hp_job_free(job);
  return status;
}

void registered_by_a_job() {
  char *memory = fresh_memory();
  CHECK_EQUAL(run_job(memory, {0, 6 * page}, kept_out, 0), HP_OK);
  check_child(memory, "......xxxxxxxxxx");
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  check_child(memory, everything);
}

void kept_by_a_job() {
  char *memory = fresh_memory();
  hps_script("fail=register:3:801");
  {
    CapturedStderr hidden;
    CHECK_EQUAL(run_job(memory, {0, 6 * page}, HP_REGISTER_DONTFORK, 1), HP_PAGEABLE);
  }
  CHECK_EQUAL(hp_query(memory, 4 * page, nullptr), HP_OK);
  check_child(memory, "....xxxxxxxxxxxx");
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  check_child(memory, everything);
}

// A fork would copy what is pinned already, for as long as the rest takes.
void from_the_first_pin_to_the_last_release() {
  char *memory = fresh_memory();
  hps_on_call(
      [](const char *function, const void *, std::size_t, void *user) {
        if (std::string(function).find("egister") != std::string::npos)
          check_child(static_cast<char *>(user), "......xxxxxxxxxx");
      },
      memory);
  CHECK_EQUAL(hp_register(memory, 6 * page, kept_out), HP_OK);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(run_job(memory, {0, 6 * page}, kept_out, 0), HP_OK);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  hps_on_call(nullptr, nullptr);
  check_child(memory, everything);
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"pages_are_absent_until_the_end", pages_are_absent_until_the_end},
                    {"only_when_asked_for", only_when_asked_for},
                    {"whole_pages_only", whole_pages_only},
                    {"overlapping_registrations", overlapping_registrations},
                    {"one_within_another", one_within_another},
                    {"ranges_and_their_gaps", ranges_and_their_gaps},
                    {"refused_registration", refused_registration},
                    {"failed_release", failed_release},
                    {"unregister_all_ends_it", unregister_all_ends_it},
                    {"registered_by_a_job", registered_by_a_job},
                    {"kept_by_a_job", kept_by_a_job},
                    {"from_the_first_pin_to_the_last_release", from_the_first_pin_to_the_last_release}});
}
