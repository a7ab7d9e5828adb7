// Owns where runs leave their files, and which files a later run may replace.
//
// A directory that a run has used holds a mark, which lists the files that runs have written. The
// next run in the same directory removes those and no others; a file that the mark does not list is
// the user's. The mark is locked as long as its run goes on.
#include "emu/launch/run_directory.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <vector>

#include "srd/io/posix.hpp"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKept = 20;
constexpr std::size_t kStampSize = 15;  // 20260131-120000

// Arguments of programs are any bytes; JSON is UTF-8.
constexpr auto kReplaced = nlohmann::ordered_json::error_handler_t::replace;

std::string stamp() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

// Whether a name is one that create() makes: time, seed and process, in digits.
bool is_run(const std::string& name) {
  return name.size() > kStampSize && name[8] == '-' && name[kStampSize] == '-' &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0 || c == '-'; });
}

// The mark: it tells a run's directory from any other. A run holds a lock on it until it ends.
constexpr const char* kMark = ".weft-run";
constexpr const char* kMarkText =
    "This directory holds what a run of weft left. The next run with the same --out replaces:\n";

// All that a run may write.
constexpr std::array kNames{"config.resolved.yml", "events.jsonl", "metrics.prom", "capture.pcapng",
                            "network.jsonl",       "report.html",  "result.json",  "topology.yml"};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// O_NOFOLLOW and openat(): another user who may write to the directory must not be able to direct
// this write to a file of his choice.
bool save(int directory, const std::string& name, const std::string& text, int how = O_TRUNC) {
  const srd::UniqueFd file(
      ::openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | how, 0666));
  std::size_t written = 0;
  while (file && written < text.size()) {
    const ssize_t size = ::write(file.get(), text.data() + written, text.size() - written);
    if (size < 0 && errno != EINTR) {
      return false;
    }
    written += size > 0 ? static_cast<std::size_t>(size) : 0;
  }
  return static_cast<bool>(file);
}

// A mark names the files that runs have written, one a line.
std::set<std::string> files_of_runs(const std::string& directory) {
  std::set<std::string> names;
  std::istringstream lines(text_of(directory + "/" + kMark));
  for (std::string line; std::getline(lines, line);) {
    if (std::find(kNames.begin(), kNames.end(), line) != kNames.end()) {
      names.insert(line);
    }
  }
  return names;
}

bool is_going_on(const std::string& directory) {
  const srd::UniqueFd mark(
      ::open((directory + "/" + kMark).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return !mark || ::flock(mark.get(), LOCK_EX | LOCK_NB) != 0;
}

// Keeps the latest kKept runs and those that still go on. Names begin with their time, so the
// oldest come first. A directory without a mark stays: a run may just be making it, or it is not
// ours.
void forget_old(const std::string& base) {
  std::vector<std::string> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(base, error)) {
    if (is_run(entry.path().filename().string())) {
      runs.push_back(entry.path().string());
    }
  }
  std::sort(runs.begin(), runs.end());
  for (std::size_t i = 0; i + kKept < runs.size(); ++i) {
    if (!is_going_on(runs[i])) {
      fs::remove_all(runs[i], error);
    }
  }
}

// The directory below which runs lie that were given no place, made if need be.
Result<std::string> own_base() {
  const char* temporary = ::getenv("TMPDIR");
  std::error_code error;
  const std::string root =
      temporary != nullptr && fs::is_directory(temporary, error) ? temporary : "/tmp";
  const std::string base = root + "/weft-runs-" + std::to_string(::geteuid());
  ::mkdir(base.c_str(), S_IRWXU);
  struct stat info {};
  // In /tmp, another user may have made a directory of this name: do not use it.
  if (::lstat(base.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) {
    return fail(ErrorCode::not_permitted,
                "'" + base + "' is not this user's directory; set WEFT_RUNS to another place");
  }
  return base;
}

}  // namespace

Result<RunDirectory> RunDirectory::create(const std::string& wish, std::uint64_t seed,
                                          const Files& files) {
  RunDirectory run;
  run.begin_ = std::chrono::steady_clock::now();
  run.path_ = wish;
  const char* given = ::getenv("WEFT_RUNS");
  const bool is_given = given != nullptr && *given != '\0';
  std::string own;
  if (wish.empty()) {
    const auto base = is_given ? Result<std::string>(given) : own_base();
    if (!base) {
      return tl::unexpected(base.error());
    }
    own = is_given ? "" : *base;
    run.path_ =
        *base + "/" + stamp() + "-" + std::to_string(seed) + "-" + std::to_string(::getpid());
  }
  std::error_code error;
  fs::create_directories(run.path_, error);
  if (::access(run.path_.c_str(), W_OK | X_OK) != 0) {
    return fail(ErrorCode::io_error,
                srd::errno_text("run directory '" + run.path_ + "' (choose one with --out DIR)"));
  }
  if (auto claimed = run.claim(files); !claimed) {
    return tl::unexpected(claimed.error());
  }
  if (!own.empty()) {
    forget_old(own);
  }
  return run;
}

void RunDirectory::forget(const std::string& directory) {
  if (is_going_on(directory)) {
    return;
  }
  std::error_code error;
  for (const std::string& name : files_of_runs(directory)) {
    fs::remove(directory + "/" + name, error);
  }
  fs::remove(directory + "/" + kMark, error);
  fs::remove(directory, error);  // only an empty one
}

// Nothing is written before every name is known to be free or ours. Then the mark is locked, and
// lists what this run may write before it writes any of it: a run that is killed leaves no file
// that the next one takes for the user's.
Result<void> RunDirectory::claim(const Files& files) {
  directory_ = srd::UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory_) {
    return fail(ErrorCode::io_error, srd::errno_text("run directory '" + path_ + "'"));
  }
  const std::set<std::string> ours = files_of_runs(path_);
  std::error_code error;
  std::set<std::string> mine;
  for (const char* name : kNames) {
    const std::string path = path_ + "/" + name;
    if (ours.contains(name) || !fs::exists(fs::symlink_status(path, error))) {
      mine.insert(name);
      continue;
    }
    const auto wanted = files.find(name);
    if (wanted == files.end() || wanted->second != text_of(path)) {
      return fail(ErrorCode::invalid_argument,
                  "'" + path + "' is not of a run of weft and would be overwritten: move it, or " +
                      "choose another directory with --out DIR");
    }
  }
  const std::string path = path_ + "/" + kMark;
  mark_ = srd::UniqueFd(
      ::openat(directory_.get(), kMark, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!mark_) {
    return fail(ErrorCode::io_error, srd::errno_text("'" + path + "'"));
  }
  if (::flock(mark_.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::invalid_argument,
                "'" + path_ + "' belongs to a run that still goes on: choose another --out DIR");
  }
  std::string text = kMarkText;
  for (const std::string& name : mine) {
    fs::remove(path_ + "/" + name, error);  // of a run before this one
    text += name + "\n";
  }
  bool written = save(directory_.get(), kMark, text);
  for (const auto& [name, content] : files) {
    written = written && (!mine.contains(name) || save(directory_.get(), name, content));
  }
  return written ? Result<void>{}
                 : fail(ErrorCode::io_error, srd::errno_text("writing to '" + path_ + "'"));
}

void RunDirectory::write(const std::string& name, const std::string& text) const {
  (void)save(directory_.get(), name, text);
}

void RunDirectory::event(const std::string& what, nlohmann::ordered_json details) const {
  nlohmann::ordered_json line;
  line["t"] = seconds();
  line["event"] = what;
  for (auto& [key, value] : details.items()) {
    line[key] = value;
  }
  (void)save(directory_.get(), "events.jsonl", line.dump(-1, ' ', false, kReplaced) + "\n",
             O_APPEND);
}

double RunDirectory::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

}  // namespace weft::launch
