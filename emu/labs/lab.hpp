// Owns labs that run: an emulated network, and a container for each of its hosts.
#pragma once

#include <string>
#include <vector>

#include "emu/labs/engine.hpp"
#include "emu/labs/lab_file.hpp"
#include "emu/labs/lab_record.hpp"
#include "emu/labs/lab_start.hpp"
#include "srd/base/result.hpp"

namespace weft::labs {

struct LabSource {
  std::string path;
  std::string text;
  std::string directory;  // where relative names in it start
};

// Starts what is not there: the network, or a weftd in the place of one that was killed, and
// containers for all hosts that have no running one. Without success nothing of the lab stays, nor
// when it is interrupted; if it is killed, the next start of any lab, or the end of this one,
// clears away what is there.
[[nodiscard]] Result<LabRecord> start_lab(const LabSource& source, const std::string& engine,
                                          const Progress& progress);

// Ends the lab: containers, their network, weftd. False: there was only a part of it.
[[nodiscard]] Result<bool> end_lab(const std::string& name, const Progress& progress);

// The names of this user's labs, in order.
[[nodiscard]] std::vector<std::string> labs_there();

// A lab that can be asked about.
struct RunningLab {
  LabIdentity identity;
  LabRecord record;
  ContainerEngine engine;

  // The container of that node, which the lab must have.
  [[nodiscard]] Result<std::string> container(const std::string& node) const;
  // One for each node; `state` is "missing" where there is no container.
  [[nodiscard]] Result<std::vector<ContainerState>> states() const;
};
// `name` empty: the only one there is.
[[nodiscard]] Result<RunningLab> find_lab(const std::string& name);

}  // namespace weft::labs
