// Owns a program that goes around the device's hooks, as software does that rings doorbells itself:
// it posts and polls by the functions that the library had before hooks replaced them. Two ranks on
// one host run `bypass TURNS` and send one message to and fro; each prints the time of one way.
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/conformance/storm/queue_pair.hpp"

namespace weft::conformance {
namespace {

constexpr std::uint32_t kSlots = 4;  // more than enough: one message is under way at a time
constexpr std::uint32_t kSize = 64;

// Tells the other rank our number, and returns its. Each number is a file of WEFT_CASE_DIR, which
// rename() makes appear whole. Waits for 30 s.
std::uint32_t exchange(std::uint32_t number) {
  const std::string folder = std::getenv("WEFT_CASE_DIR");
  const int rank = std::atoi(std::getenv("WEFT_RANK"));
  const std::string own = folder + "/" + std::to_string(rank);
  std::ofstream(own + ".part") << number;
  std::filesystem::rename(own + ".part", own);
  for (int tries = 0; tries < 3000; ++tries) {
    std::ifstream other(folder + "/" + std::to_string(1 - rank));
    std::uint32_t found = 0;
    if (other >> found) {
      return found;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  demand(false, "the other program does not come");
  return 0;
}

// The trap makes the page of the send doorbell read-only, so that a store there raises a signal. Of
// the device's other mappings only the completion queue is read-only.
bool doorbell_is_watched() {
  std::ifstream maps("/proc/self/maps");
  int read_only = 0;
  for (std::string line; std::getline(maps, line);) {
    const bool device = line.find("weft-uverbs") != std::string::npos;
    read_only += device && line.find(" r--s ") != std::string::npos ? 1 : 0;
  }
  return read_only == 2;
}

}  // namespace
}  // namespace weft::conformance

int main(int argc, char** argv) {
  using namespace weft::conformance;
  demand(argc == 2, "usage: bypass TURNS");
  const int turns = std::atoi(argv[1]);
  const bool first = std::strcmp(std::getenv("WEFT_RANK"), "0") == 0;
  QueuePair queue(kSlots, kSize, QueuePair::Calls::stock);
  const bool asked = std::getenv("WEFT_DOORBELL_TRAP") != nullptr;
  demand(doorbell_is_watched() == asked, "the doorbell is watched exactly if that was asked for");
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    queue.post_receive(slot);
  }
  const std::uint32_t peer = exchange(queue.number());
  ibv_wc done{};
  const auto begin = std::chrono::steady_clock::now();
  // Sooner than the test's own limit, which would end the program without saying where it hangs.
  const auto is_late = [&] {
    return std::chrono::steady_clock::now() - begin > std::chrono::seconds{60};
  };
  for (int turn = 0; turn < turns; ++turn) {
    std::memset(queue.send_slot(0), turn & 0xFF, kSize);
    if (first) {
      demand(queue.post_send(0, 1000, peer), "no room");
    }
    int missing = 2;  // the other rank's message, and the completion of our own
    while (missing > 0) {
      if (!queue.poll(done)) {
        demand(!is_late(), "waited too long");
        std::this_thread::yield();
        continue;
      }
      demand(done.status == IBV_WC_SUCCESS, ibv_wc_status_str(done.status));
      --missing;
      if ((done.opcode & IBV_WC_RECV) != 0) {
        demand(queue.receive_slot(done.wr_id)[kSize - 1] == (turn & 0xFF), "wrong bytes");
        queue.post_receive(done.wr_id);
        if (!first) {
          demand(queue.post_send(0, 1000, peer), "no room");
        }
      }
    }
  }
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  std::printf("%.1f us per message\n", time.count() / turns / 2);
  return 0;
}
