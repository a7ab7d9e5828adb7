// Owns making the folders of cells, and removing what a matrix has left.
//
// A folder of ours has a mark in it. That of a place is locked while its matrix goes on; that of a
// cell says that the files of a cell in there are ours.
#include "emu/cli/matrix/shelf.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "emu/launch/run_directory.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = ".weft-matrix";
// A mark gets its name only when it is locked: another matrix, which removes places whose mark is
// not locked, must not find it before.
constexpr const char* kDraft = ".weft-matrix-draft";
constexpr const char* kPrefix = "weft-matrix-";
constexpr std::size_t kRandomSize = 6;
constexpr std::array kFilesOfCells{CellFiles::kLog, CellFiles::kStacks, CellFiles::kTopology};

// Nothing if another process has locked it. Never through a link: in a folder that all users may
// write to it may lead to any file.
srd::UniqueFd lock(const std::string& mark, int how) {
  srd::UniqueFd file(::open(mark.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | how, 0644));
  return file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 ? std::move(file) : srd::UniqueFd();
}

bool is_own_folder(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

// Temporary places of matrices that were killed.
void sweep(const fs::path& base) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(base, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.size() == std::string(kPrefix).size() + kRandomSize &&
        is_own_folder(entry.path()) && lock(entry.path() / kMark, 0)) {
      fs::remove_all(entry.path(), error);
    }
  }
}

// With leading zeros, so that a listing of the folders has the order of the cells.
std::string digits(std::size_t number, std::size_t of) {
  return fmt::format("{:0{}}", number, std::to_string(of).size());
}

}  // namespace

// A folder that the user named is locked in place, since an earlier matrix may have left its mark
// there. A temporary one has a name that nobody can guess, and gets its mark when that is locked.
Shelf::Shelf(const std::string& wish) : keeps_all_(!wish.empty()) {
  if (keeps_all_) {
    std::error_code error;
    fs::create_directories(wish, error);
    path_ = error ? wish : fs::absolute(wish, error).string();
    const std::string why = error ? error.message() : "";
    if (error || ::access(wish.c_str(), W_OK | X_OK) != 0) {
      throw std::runtime_error(error ? fmt::format("--keep '{}': {}", wish, why)
                                     : srd::errno_text(fmt::format("--keep '{}'", wish)));
    }
    mark_ = lock(path_ + "/" + kMark, O_CREAT);
    if (!mark_) {
      throw std::runtime_error(
          fmt::format("--keep '{}' belongs to a matrix that still goes on: name another", wish));
    }
    return;
  }
  const fs::path base = fs::temp_directory_path();
  sweep(base);
  path_ = (base / (kPrefix + std::string(kRandomSize, 'X'))).string();
  if (::mkdtemp(path_.data()) == nullptr) {
    throw std::runtime_error(srd::errno_text("cannot make '" + path_ + "'"));
  }
  const std::string draft = path_ + "/" + kDraft;
  mark_ = lock(draft, O_CREAT | O_EXCL);
  if (!mark_ || ::rename(draft.c_str(), (path_ + "/" + kMark).c_str()) != 0) {
    throw std::runtime_error(srd::errno_text("cannot make '" + draft + "'"));
  }
}

Shelf::~Shelf() {
  if (!keeps_all_) {
    std::error_code error;
    fs::remove(path_ + "/" + kMark, error);  // what is left is for people to read
    fs::remove(path_, error);                // only an empty one
  }
}

std::string Shelf::make_place_for(const Cell& cell, std::size_t number, std::size_t of) const {
  const std::string path = path_ + "/" + digits(number, of) + "-" + cell.name();
  const std::string mark = path + "/" + kMark;
  std::error_code error;
  // An earlier matrix was here. Only files by the names that a cell has go; mkdir() below then
  // finds the folder, and is_empty() whether the user has put something in.
  if (is_own_folder(path) && fs::is_regular_file(fs::symlink_status(mark, error))) {
    for (const char* name : kFilesOfCells) {
      fs::remove(path + "/" + name, error);
    }
    launch::RunDirectory::forget(path + "/" + CellFiles::kRun);
    fs::remove(mark, error);
  }
  if (::mkdir(path.c_str(), 0777) != 0) {
    if (errno != EEXIST) {
      throw std::runtime_error(srd::errno_text("cannot make '" + path + "'"));
    }
    if (!fs::is_empty(path, error)) {
      throw std::runtime_error("'" + path +
                               "' has files that are not of a matrix: move them, or choose "
                               "another --keep");
    }
  }
  if (!srd::UniqueFd(::open(mark.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644))) {
    throw std::runtime_error(srd::errno_text("cannot make '" + mark + "'"));
  }
  return path;
}

void Shelf::put(CellResult& result, const std::string& folder) const {
  if (!keeps_all_ && result.verdict != Verdict::red) {
    std::error_code error;
    fs::remove_all(folder, error);
    result.log.clear();
  }
}

}  // namespace weft::cli
