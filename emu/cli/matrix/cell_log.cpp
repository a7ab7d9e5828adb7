// Owns passing on a cell's output, up to the limit. The output comes through a pipe, so that it can
// be cut off: a program that prints for ever must not fill the disk.
#include "emu/cli/matrix/cell_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <vector>

namespace weft::cli {
namespace {

constexpr int kPipe = 1 << 20;  // what programs may be ahead of us; the kernel may grant less
constexpr std::size_t kPiece = std::size_t{1} << 16;
constexpr int kMaxPieces = 64;  // at a time: others are waiting, too

}  // namespace

CellLog::CellLog(const std::string& path) {
  file_ = srd::UniqueFd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file_) {
    throw std::runtime_error(srd::errno_text("cannot write '" + path + "'"));
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw std::runtime_error(srd::errno_text("cannot make a pipe"));
  }
  reader_ = srd::UniqueFd(ends[0]);
  writer_ = srd::UniqueFd(ends[1]);
  // One thread looks after all cells, so no read may wait.
  ::fcntl(reader_.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(reader_.get(), F_SETPIPE_SZ, kPipe);
}

void CellLog::read() {
  static std::vector<char> piece(kPiece);
  for (int i = 0; reader_ && i < kMaxPieces; ++i) {
    const ssize_t size = ::read(reader_.get(), piece.data(), piece.size());
    if (size > 0) {
      write(piece.data(), static_cast<std::size_t>(size));
    } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
      reader_.reset();
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

void CellLog::write(const char* data, std::size_t size) {
  // What is beyond the limit is read all the same, so that programs do not stand still at a full
  // pipe; the cell is being ended by then.
  const std::size_t wanted = std::min(size, kMax - std::min(size_, kMax));
  size_ += size;
  for (std::size_t done = 0; done < wanted && failure_ == 0;) {
    const ssize_t written = ::write(file_.get(), data + done, wanted - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      failure_ = errno;
    }
  }
}

}  // namespace weft::cli
