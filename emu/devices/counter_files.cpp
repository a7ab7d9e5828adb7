// Owns which folders there are for counters, and bringing them up to date.
#include "emu/devices/counter_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <string_view>

#include "emu/devices/registry.hpp"

namespace weft::devices {
namespace {

using Place = kernel::CounterSet::Place;

constexpr std::string_view kOfHardware = "/hw_counters";
constexpr std::string_view kStandard = "/counters";

struct Folder {
  Place place;
  const char* below_device;
  bool has_lifespan;
};
constexpr Folder kFolders[] = {
    {Place::device, "hw_counters", true},
    {Place::port, "ports/1/hw_counters", true},
    {Place::port_standard, "ports/1/counters", false},
};

// Counters only grow, so the new text is at least as long as the old one, and one pwrite() replaces
// it: a reader never sees a mixture.
void write_number(const std::string& path, std::uint64_t value) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  const std::string text = std::to_string(value) + "\n";
  (void)!::pwrite(fd, text.data(), text.size(), 0);
  ::close(fd);
}

}  // namespace

Result<NicStatistics> read_statistics(const std::string& path) {
  const auto file = kernel::StatisticsFile::open(path);
  if (!file) {
    return tl::unexpected(file.error());
  }
  const Personality* const kind = find_kind(file->kind());
  if (kind == nullptr) {
    return fail(ErrorCode::not_found, path + " is of a kind of device that there is not");
  }
  return NicStatistics{kind, file->sum(kind->counters())};
}

void write_counter_files(kernel::TreeWriter& tree, const Personality& kind,
                         const std::filesystem::path& folder) {
  for (const Folder& one : kFolders) {
    bool empty = true;
    kind.counters().visit(one.place, {}, [&](const char* name, std::uint64_t value) {
      tree.file(folder / one.below_device / name, std::to_string(value));
      empty = false;
    });
    if (one.has_lifespan && !empty) {
      tree.file(folder / one.below_device / "lifespan", "10");  // milliseconds
    }
  }
}

void refresh_counter_files(const std::string& root, const char* path) {
  constexpr std::string_view kDevices = "/infiniband/";
  const std::string_view whole = path;
  const std::size_t device = whole.find(kDevices, root.size());
  if (device == std::string_view::npos) {
    return;
  }
  const std::size_t name = device + kDevices.size();
  const std::size_t name_ends = whole.find('/', name);
  const std::size_t of_hardware = whole.find(kOfHardware, name);
  const std::size_t standard = whole.find(kStandard, name);
  if (name_ends == std::string_view::npos ||
      (of_hardware == std::string_view::npos && standard == std::string_view::npos)) {
    return;
  }
  const std::string_view nic = whole.substr(name, name_ends - name);
  const auto statistics = read_statistics(kernel::statistics_path(root, nic));
  if (!statistics) {
    return;
  }
  const bool is_standard = of_hardware == std::string_view::npos;
  const std::size_t ends =
      is_standard ? standard + kStandard.size() : of_hardware + kOfHardware.size();
  const bool of_port = whole.substr(0, ends).find("/ports/") != std::string_view::npos;
  const Place place = is_standard ? Place::port_standard : of_port ? Place::port : Place::device;
  const std::string prefix = std::string(whole.substr(0, ends)) + "/";
  statistics->kind->counters().visit(place, statistics->sum,
                                     [&prefix](const char* counter, std::uint64_t value) {
                                       write_number(prefix + counter, value);
                                     });
}

}  // namespace weft::devices
