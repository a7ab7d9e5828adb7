// Owns a rank that closes its last connection again and again, and then leaves.
//
//   weft_nccl_closer PLUGIN FOLDER dies|closes|sends|receives
//
// The one that `dies` or `closes` sends a message to the one that `sends`, and ends without or with
// a word. That one closes many connections to the one that `receives`, then sends and leaves.
#include "tests/conformance/leaving/calls.hpp"

namespace weft::collectives {
namespace {

constexpr int kRounds = 12;
constexpr std::size_t kLast = 16;

void end_first(Net& net, const std::string& folder, bool closes) {
  void* const connection = connect(net, folder + "/sender");
  send(net, connection, kLong, 1);
  require(!closes || net.close_send(connection) == kSuccess, "closeSend");
  make_file(folder + "/ended");
  ::_exit(0);
}

void close_often(Net& net, const std::string& folder) {
  void* connection = accept(net, listen(net, folder + "/sender"));
  receive(net, connection, kLong, 1);
  await_file(folder + "/ended");
  require(net.close_receive(connection) == kSuccess, "closeRecv");
  for (int i = 0; i <= kRounds; ++i) {
    connection = connect(net, folder + "/receiver");
    send(net, connection, kShort, i == kRounds ? kLast : 1);
    require(net.close_send(connection) == kSuccess, "closeSend");
  }
  make_file(folder + "/gone");
}

// The last messages when their sender has gone.
void receive_often(Net& net, const std::string& folder) {
  void* const listener = listen(net, folder + "/receiver");
  for (int i = 0; i <= kRounds; ++i) {
    void* const connection = accept(net, listener);
    if (i == kRounds) {
      await_file(folder + "/gone");
    }
    receive(net, connection, kShort, i == kRounds ? kLast : 1);
    require(net.close_receive(connection) == kSuccess, "closeRecv");
  }
}

}  // namespace
}  // namespace weft::collectives

int main(int count, char** words) {
  using namespace weft::collectives;
  if (count != 4) {
    std::fprintf(stderr, "usage: weft_nccl_closer PLUGIN FOLDER dies|closes|sends|receives\n");
    return 2;
  }
  const auto loaded = load_plugin(words[1]);
  const std::string role = words[3];
  if (role == "dies" || role == "closes") {
    end_first(*loaded.net, words[2], role == "closes");
  }
  (role == "sends" ? close_often : receive_often)(*loaded.net, words[2]);
  leave();
}
