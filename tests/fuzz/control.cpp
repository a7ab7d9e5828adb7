// Fuzzes what people and programs say to weftd: lines of its control protocol, and HTTP.
//
// The daemon is a real one with its folder and its sockets, but its loop does not run: each input
// is handed to what answers a line or a request. The first byte chooses which.
#include "emu/daemon/control.hpp"

#include <stdio.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "emu/daemon/daemon.hpp"
#include "emu/daemon/metrics.hpp"

namespace {

using weft::daemon::Daemon;

// It must not be told to write files, also not with the word in disguise.
// `start` is how a capture is begun, into any file that this user may write; and JSON can spell it
// with escapes.
bool is_harmless(const std::string& line) {
  return line.find("start") == std::string::npos && line.find("\\u") == std::string::npos;
}

std::unique_ptr<Daemon> make_daemon() {
  static char path[] = "/tmp/weft-fuzz-XXXXXX";
  static const bool made = ::mkdtemp(path) != nullptr;
  if (!made) {
    ::abort();
  }
  ::atexit([] {
    for (const char* name : {"/attach.sock", "/control.sock", "/metrics.sock"}) {
      (void)::remove((std::string(path) + name).c_str());
    }
    (void)::remove(path);
  });
  weft::daemon::DaemonOptions options;
  options.directory = path;
  options.plant.hosts = {"h1", "h2"};
  auto daemon = Daemon::create(options);
  if (!daemon) {
    ::abort();
  }
  return std::move(*daemon);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // One for all inputs, since making it takes longer than answering.
  static const std::unique_ptr<Daemon> daemon = make_daemon();
  if (size == 0 || size > 4096) {
    return 0;
  }
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    bool close = false;
    // Requests may follow each other on one connection.
    while (!text.empty() && weft::daemon::answer_http(daemon->control(), text, close) && !close) {
    }
    return 0;
  }
  if (is_harmless(text)) {
    const std::string answer = weft::daemon::answer_control(daemon->control(), text);
    if (answer.empty() || answer.find('\n') != answer.size() - 1) {
      ::abort();  // one line, always
    }
  }
  return 0;
}
