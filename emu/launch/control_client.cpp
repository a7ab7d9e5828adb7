// Owns the client's side of the control protocol.
#include "emu/launch/control_client.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "emu/attach/seqpacket.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {
namespace {

constexpr int kVersion = 1;

// A fault has mappings in a mapping and nothing below; an alias of what it stands in would have no
// end.
constexpr int kMaxLevels = 8;

// Throws a YAML::Exception, with its place.
[[noreturn]] void refuse(const YAML::Node& node, const std::string& what) {
  throw YAML::Exception(node.Mark(), what);
}

// Scalars stay text, and whatever has no business here is passed on: weftd's reader of faults knows
// the types.
nlohmann::json to_json(const YAML::Node& node, int levels = kMaxLevels) {
  if (levels == 0) {
    refuse(node, "mappings and lists in one another, more than " + std::to_string(kMaxLevels));
  }
  if (node.IsSequence()) {
    nlohmann::json list = nlohmann::json::array();
    for (const YAML::Node& item : node) {
      list.push_back(to_json(item, levels - 1));
    }
    return list;
  }
  if (!node.IsMap()) {
    return node.IsScalar() ? nlohmann::json(node.Scalar()) : nlohmann::json();
  }
  nlohmann::json map = nlohmann::json::object();
  for (const auto& pair : node) {
    if (!pair.first.IsScalar()) {
      refuse(pair.first, "a key must be a plain word");
    }
    if (!map.emplace(pair.first.Scalar(), to_json(pair.second, levels - 1)).second) {
      refuse(pair.first, "'" + pair.first.Scalar() + "' is here a second time");
    }
  }
  return map;
}

// Limits the next call on the socket to what is left of the time for the whole request: a limit for
// each call alone would let a slow peer stretch the sum.
void let_wait_until(std::chrono::steady_clock::time_point give_up, int socket) {
  using std::chrono::microseconds;
  const auto left =
      std::max(std::chrono::duration_cast<microseconds>(give_up - std::chrono::steady_clock::now()),
               microseconds{1});  // 0 would be for ever
  const timeval patience{left.count() / 1'000'000, left.count() % 1'000'000};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

}  // namespace

Result<nlohmann::json> ask_weftd(const std::string& directory, nlohmann::json request) {
  const std::string path = directory + "/control.sock";
  const auto address = attach::unix_address(path);
  if (!address) {
    return tl::unexpected(address.error());
  }
  const srd::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto give_up = std::chrono::steady_clock::now() + kPatienceWithAnswer;
  let_wait_until(give_up, socket.get());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    const bool nobody = errno == ENOENT || errno == ECONNREFUSED;
    return fail(nobody ? ErrorCode::not_found : ErrorCode::io_error,
                srd::errno_text("no weftd answers at '" + path + "'"));
  }
  request["v"] = kVersion;
  std::string line;
  try {
    line = request.dump() + "\n";
  } catch (const nlohmann::json::type_error&) {
    // Not replaced: a name would become that of another file or link.
    return fail(ErrorCode::invalid_argument,
                "weftd can be told only text in UTF-8, and this is none: " +
                    request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  let_wait_until(give_up, socket.get());
  if (::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size())) {
    return fail(ErrorCode::io_error, srd::errno_text("asking weftd"));
  }
  std::string answer;
  std::array<char, 4096> buffer;
  while (answer.find('\n') == std::string::npos) {
    let_wait_until(give_up, socket.get());
    const ssize_t size = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (size <= 0) {
      return fail(ErrorCode::io_error,
                  size == 0 ? "weftd closed the connection" : srd::errno_text("waiting for weftd"));
    }
    answer.append(buffer.data(), static_cast<std::size_t>(size));
  }
  auto reply = nlohmann::json::parse(answer, nullptr, false);
  if (!reply.is_object() || !reply.value("ok", false)) {
    return fail(ErrorCode::io_error, reply.is_object() ? reply.value("error", "weftd refused")
                                                       : "weftd's answer is not JSON");
  }
  return reply;
}

Result<std::uint32_t> apply_fault(const std::string& directory, const std::string& text) {
  nlohmann::json fault;
  try {
    fault = to_json(YAML::Load("{" + text + "}"));
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::parse_error, "fault '" + text + "': " + error.msg);
  }
  const auto reply = ask_weftd(directory, {{"cmd", "fault"}, {"fault", fault}});
  if (!reply) {
    return tl::unexpected(reply.error());
  }
  return (*reply)["fault"].get<std::uint32_t>();
}

}  // namespace weft::launch
