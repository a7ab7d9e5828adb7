// Owns labs that run: an emulated network, and a container for each of its hosts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "emu/labs/container_engine.hpp"
#include "emu/labs/lab_file.hpp"
#include "emu/labs/lab_record.hpp"
#include "emu/labs/lab_start.hpp"
#include "srd/base/result.hpp"

namespace weft::labs {

// What a lab was made from. Two labs are the same if their texts are equal.
struct LabSource {
  std::string path;
  std::string text;
  std::string directory;  // where relative names in it start
};

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

// Starts what is not there: the network, or a weftd in the place of one that was killed, and
// containers for all hosts that have no running one. Without success nothing of the lab stays, nor
// when it is interrupted; if it is killed, the next start of any lab, or the end of this one,
// clears away what is there.
[[nodiscard]] Result<LabRecord> start_lab(const LabSource& source, const std::string& engine,
                                          const Progress& progress);
// The same of a lab that something else than a lab file describes, and whose text says when two are
// equal.
[[nodiscard]] Result<LabRecord> start_lab(const LabFile& file, const LabSource& source,
                                          const std::string& engine, const Progress& progress);

// Starts a lab that is not there yet, and ends it when `while_up` has returned, or is interrupted.
// If this program is killed it goes as one whose start was broken off.
[[nodiscard]] Result<void> run_lab(const LabFile& file, const LabSource& source,
                                   const std::string& engine, const Progress& progress,
                                   const std::function<Result<void>(const RunningLab&)>& while_up);

// Ends the lab: containers, their network, weftd. False: there was only a part of it.
[[nodiscard]] Result<bool> end_lab(const std::string& name, const Progress& progress);

// The names of this user's labs, in order.
[[nodiscard]] std::vector<std::string> labs_there();

// `name` empty: the only one there is.
[[nodiscard]] Result<RunningLab> find_lab(const std::string& name);

}  // namespace weft::labs
