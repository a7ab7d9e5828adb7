// Owns writing and removing CDI files.
#include "emu/launch/cdi.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "emu/launch/control_client.hpp"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kVersion = "0.5.0";
constexpr std::size_t kHeader = 64;  // of a packet, in weftd's MTU

std::string list_of(const std::string& directory) { return directory + "/cdi"; }

std::vector<std::string> files_on_list(const std::string& directory) {
  std::vector<std::string> files;
  std::ifstream list(list_of(directory));
  for (std::string line; std::getline(list, line);) {
    files.push_back(line);
  }
  return files;
}

Result<void> put_on_list(const std::string& directory, const std::string& file) {
  auto files = files_on_list(directory);
  if (std::find(files.begin(), files.end(), file) != files.end()) {
    return {};
  }
  std::ofstream list(list_of(directory), std::ios::app);
  list << file << "\n" << std::flush;
  return list ? Result<void>{}
              : fail(ErrorCode::io_error, "cannot write '" + list_of(directory) + "'");
}

// Engines may read at any time: the file appears whole. They read names that end with .json.
Result<void> write_whole(const std::string& file, const std::string& text) {
  const std::string draft = file + ".new";
  std::error_code error;
  {
    std::ofstream out(draft, std::ios::trunc);
    out << text << std::flush;
    if (!out) {
      return fail(ErrorCode::io_error, "cannot write '" + file +
                                           "': engines look there, and only root may write; " +
                                           "--output names another folder");
    }
  }
  fs::permissions(draft, static_cast<fs::perms>(0644), error);
  fs::rename(draft, file, error);
  return error ? Result<void>(
                     fail(ErrorCode::io_error, "cannot write '" + file + "': " + error.message()))
               : Result<void>{};
}

// The largest payload that the network carries; kinds of devices that send more do not fit it.
Result<std::size_t> payload_carried(const std::string& directory) {
  const auto status = ask_weftd(directory, {{"cmd", "status"}});
  if (!status) {
    return tl::unexpected(status.error());
  }
  return (*status)["status"]["mtu"].get<std::size_t>() - kHeader;
}

}  // namespace

std::string cdi_text(const std::string& kind, const std::string& prefix, const std::string& folder,
                     const std::vector<ContainerDevice>& devices) {
  ordered_json file;
  file["cdiVersion"] = kVersion;
  file["kind"] = "weft.dev/" + kind;
  file["devices"] = ordered_json::array();
  for (const ContainerDevice& device : devices) {
    ordered_json edits;
    for (const auto& [name, value] : device.environment) {
      edits["env"].push_back(name + "=" + value);
    }
    ordered_json mount;
    mount["hostPath"] = folder;
    mount["containerPath"] = kMountPoint;
    // Programs count in files of their device trees.
    mount["options"] = {"rbind", "rw", "nosuid", "nodev"};
    edits["mounts"].push_back(mount);
    ordered_json entry;
    entry["name"] = prefix + device.name;
    entry["containerEdits"] = edits;
    file["devices"].push_back(entry);
  }
  return file.dump(2) + "\n";
}

Result<std::vector<std::string>> write_cdi(const std::string& directory, const std::string& name,
                                           const std::vector<std::string>& kinds,
                                           const std::string& output, const std::string& names) {
  const auto carried = payload_carried(directory);
  if (!carried) {
    return tl::unexpected(carried.error());
  }
  std::error_code error;
  fs::create_directories(output, error);
  const std::string folder = fs::canonical(shared_folder(directory), error).string();
  std::vector<std::string> files;
  for (const std::string& asked : kinds) {
    const auto kind = parse_device_kind(asked, names);
    if (!kind) {
      return tl::unexpected(kind.error());
    }
    if (!*kind || payload_of(*kind) > *carried) {
      continue;
    }
    const auto devices = furnish_shared_folder(directory, **kind);
    if (!devices) {
      return tl::unexpected(devices.error());
    }
    const std::string short_kind((*kind)->kind->kind());
    const std::string file = fs::absolute(output).lexically_normal().string() + "/weft-" + name +
                             "-" + short_kind + ".json";
    const std::string prefix = name == "default" ? "" : name + ".";
    auto done = put_on_list(directory, file);
    if (done) {
      done = write_whole(file, cdi_text(short_kind, prefix, folder, *devices));
    }
    if (!done) {
      return tl::unexpected(done.error());
    }
    files.push_back(file);
  }
  if (files.empty()) {
    return fail(ErrorCode::invalid_argument,
                "none of these devices fits the network: it carries " + std::to_string(*carried) +
                    " bytes in a packet (`weft up --device` says for which it is made)");
  }
  return files;
}

void remove_cdi(const std::string& directory) {
  for (const std::string& file : files_on_list(directory)) {
    ::unlink(file.c_str());
  }
  ::unlink(list_of(directory).c_str());
}

}  // namespace weft::launch
