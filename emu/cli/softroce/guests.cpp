// Owns how a program's command line becomes that of a guest in which it runs.
#include "emu/cli/softroce/guests.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "emu/launch/control_client.hpp"
#include "emu/launch/find_program.hpp"
#include "emu/softroce/guest.hpp"
#include "emu/softroce/guest_place.hpp"
#include "emu/softroce/image.hpp"
#include "srd/net/address_text.hpp"

namespace weft::cli {
namespace {

// As init.sh names the guest's device: the name that our device has, so that one command line
// serves both.
constexpr const char* kDevice = "rxe_0";

std::string name_of(std::size_t host) { return "h" + std::to_string(host + 1); }

}  // namespace

Result<Guests> Guests::prepare(std::size_t hosts) {
  if (launch::find_program(softroce::kQemu).empty()) {
    return fail(
        ErrorCode::not_found,
        std::string("--device softroce runs programs in virtual machines, and there is no ") +
            softroce::kQemu + ": sudo apt-get install --no-install-recommends qemu-system-x86");
  }
  // The image is made here, before the guests start: they would all wait for the one that makes it.
  auto image = softroce::cache_folder().and_then(
      [](const std::string& cache) { return softroce::make_image(cache, "default"); });
  if (!image) {
    return tl::unexpected(image.error());
  }
  auto folder = launch::TemporaryDirectory::create();
  if (!folder) {
    return tl::unexpected(folder.error());
  }
  return Guests(std::move(*folder), hosts);
}

std::vector<std::string> Guests::ports() const {
  std::vector<std::string> ports;
  for (std::size_t host = 0; host < hosts_; ++host) {
    // weftd's socket, then that of the guest's QEMU. By its @ the port hangs on that host's link,
    // whose faults the guest then has.
    ports.push_back(
        fmt::format("dgram:{0}/{1}.weftd,{0}/{1}.guest@{1}", folder_.path(), name_of(host)));
  }
  return ports;
}

Result<void> Guests::meet(const std::string& directory) {
  directory_ = directory;
  const auto answer = launch::ask_weftd(directory, {{"cmd", "status"}});
  if (!answer) {
    return tl::unexpected(answer.error());
  }
  for (const nlohmann::json& nic : (*answer)["status"]["nics"]) {
    const auto address = srd::parse_address(nic["address"].get<std::string>());
    if (!address) {
      return tl::unexpected(address.error());
    }
    const std::string host = name_of(softroce::number_of_host(*address) - 1);
    const std::string text = srd::to_text(softroce::beside(*address));
    // Of several NICs of a host the first one counts: the others' entries come too late.
    placeholders_.try_emplace("{" + host + ".ip}", text);
    placeholders_.try_emplace("{" + host + ".gid}", "::ffff:" + text);
    placeholders_.try_emplace("{" + host + ".dev}", kDevice);
  }
  return {};
}

std::string Guests::fill(const std::string& word) const {
  std::string filled = word;
  for (const auto& [placeholder, text] : placeholders_) {
    for (std::size_t at = 0; (at = filled.find(placeholder, at)) != std::string::npos;) {
      filled.replace(at, placeholder.size(), text);
      at += text.size();
    }
  }
  return filled;
}

Result<Words> Guests::around(const Words& command, const std::string& host) const {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return fail(ErrorCode::io_error,
                "cannot tell where weft is: /proc/self/exe: " + error.message());
  }
  // This very program, wherever it lies. With this machine's files as its own, the guest
  // understands the same command line.
  Words words{self.string(), "softroce", "vm",     "--network", directory_,
              "--host",      host,       "--root", "/",         "--"};
  for (const std::string& word : command) {
    words.push_back(fill(word));
  }
  return words;
}

}  // namespace weft::cli
