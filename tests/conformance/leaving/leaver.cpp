// Owns a rank that sends or receives a few messages and leaves when its connection is closed.
//
//   weft_nccl_leaver PLUGIN FOLDER short|long sends|receives
//
// Of short messages the sender leaves first: the receives are posted when it has gone.
#include "tests/conformance/leaving/calls.hpp"

namespace weft::collectives {
namespace {

constexpr std::size_t kMessages = 16;

void send_and_leave(Net& net, const std::string& folder, std::size_t size) {
  void* const connection = connect(net, folder + "/handle");
  send(net, connection, size, kMessages);
  require(net.close_send(connection) == kSuccess, "closeSend");
  make_file(folder + "/gone");
}

void receive_and_leave(Net& net, const std::string& folder, std::size_t size) {
  void* const connection = accept(net, listen(net, folder + "/handle"));
  if (size == kShort) {
    await_file(folder + "/gone");
  }
  receive(net, connection, size, kMessages);
  require(net.close_receive(connection) == kSuccess, "closeRecv");
}

}  // namespace
}  // namespace weft::collectives

int main(int count, char** words) {
  using namespace weft::collectives;
  if (count != 5) {
    std::fprintf(stderr, "usage: weft_nccl_leaver PLUGIN FOLDER short|long sends|receives\n");
    return 2;
  }
  const auto loaded = load_plugin(words[1]);
  const std::size_t size = std::string(words[3]) == "short" ? kShort : kLong;
  (std::string(words[4]) == "sends" ? send_and_leave : receive_and_leave)(*loaded.net, words[2],
                                                                          size);
  leave();
}
