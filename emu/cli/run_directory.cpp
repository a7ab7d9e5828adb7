// Owns the places and files of runs.
#include "emu/cli/run_directory.hpp"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <vector>

#include "srd/io/posix.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKept = 20;
constexpr std::size_t kStampSize = 15;  // 20260131-120000

std::string stamp() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

bool is_run(const std::string& name) {
  return name.size() > kStampSize && name[8] == '-' && name[kStampSize] == '-' &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0 || c == '-'; });
}

// Names begin with their time, so the oldest come first.
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
    fs::remove_all(runs[i], error);
  }
}

Result<std::string> own_base() {
  const char* temporary = ::getenv("TMPDIR");
  std::error_code error;
  const std::string root =
      temporary != nullptr && fs::is_directory(temporary, error) ? temporary : "/tmp";
  const std::string base = root + "/weft-runs-" + std::to_string(::geteuid());
  ::mkdir(base.c_str(), S_IRWXU);
  struct stat info {};
  // Others may write to the directory above: theirs is not used.
  if (::lstat(base.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) {
    return fail(ErrorCode::not_permitted,
                "'" + base + "' is not this user's directory; set WEFT_RUNS to another place");
  }
  return base;
}

}  // namespace

Result<RunDirectory> RunDirectory::create(const std::string& wish, std::uint64_t seed) {
  RunDirectory run;
  run.begin_ = std::chrono::steady_clock::now();
  run.path_ = wish;
  std::error_code error;
  if (wish.empty()) {
    const char* given = ::getenv("WEFT_RUNS");
    const bool is_given = given != nullptr && *given != '\0';
    const auto base = is_given ? Result<std::string>(given) : own_base();
    if (!base) {
      return tl::unexpected(base.error());
    }
    run.path_ =
        *base + "/" + stamp() + "-" + std::to_string(seed) + "-" + std::to_string(::getpid());
    fs::create_directories(run.path_, error);
    if (!is_given) {
      forget_old(*base);
    }
  } else {
    fs::create_directories(run.path_, error);
    // What a run appends to, or may not come to write, is not to be that of a run before it.
    for (const char* name : {"events.jsonl", "network.jsonl", "metrics.prom", "topology.yml"}) {
      fs::remove(run.path_ + "/" + name, error);
    }
  }
  if (::access(run.path_.c_str(), W_OK) != 0) {
    return fail(ErrorCode::io_error,
                srd::errno_text("run directory '" + run.path_ + "' (choose one with --out DIR)"));
  }
  return run;
}

void RunDirectory::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ + "/" + name, std::ios::binary) << text;
}

void RunDirectory::event(const std::string& what, nlohmann::ordered_json details) const {
  nlohmann::ordered_json line;
  line["t"] = seconds();
  line["event"] = what;
  for (auto& [key, value] : details.items()) {
    line[key] = value;
  }
  std::ofstream(path_ + "/events.jsonl", std::ios::app) << line.dump() << "\n";
}

double RunDirectory::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

}  // namespace weft::cli
