// Owns one start of a lab whose directory is claimed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "emu/labs/container_engine.hpp"
#include "emu/labs/lab_file.hpp"
#include "emu/labs/lab_record.hpp"
#include "emu/launch/host_environment.hpp"
#include "srd/base/result.hpp"

namespace weft::labs {

// What is being done. A text that is not the `last` of its step is soon replaced by the next one.
using Progress = std::function<void(const std::string& text, bool last)>;

// Starts what is not there, in the order in which one needs the other. What it has started when it
// fails stays.
class LabStart {
 public:
  LabStart(const ContainerEngine& engine, LabIdentity identity, const LabFile& file,
           const Progress& progress)
      : engine_(engine), identity_(std::move(identity)), file_(file), progress_(progress) {}

  // Notes in the record what is decided on the way.
  [[nodiscard]] Result<void> bring_up(LabRecord& record);

 private:
  [[nodiscard]] Result<void> start_network();
  [[nodiscard]] Result<void> start_weftd(std::size_t payload, const std::string& device);
  [[nodiscard]] Result<void> start_ip_network(LabRecord& record);
  [[nodiscard]] Result<void> create_networks();
  [[nodiscard]] Result<void> create_network_of_docker();
  [[nodiscard]] Result<void> create_network_as(const std::string& name, const std::string& subnet);
  [[nodiscard]] Result<void> remove_network(const std::string& name);
  [[nodiscard]] Result<std::string> ask_for_subnet(const std::string& network);
  // The name of the network by which docker is asked for a subnet.
  [[nodiscard]] std::string subnet_question() const;
  // The nodes that have no running container. Containers that have ended are removed.
  [[nodiscard]] Result<std::vector<const LabNode*>> missing_nodes() const;
  [[nodiscard]] Result<void> start_nodes(const LabRecord& record);
  [[nodiscard]] Result<void> start_some(const std::vector<const LabNode*>& nodes,
                                        const LabRecord& record);
  // As `weft up --device` takes it.
  [[nodiscard]] std::string device_of(const LabNode& node) const;

  const ContainerEngine& engine_;
  LabIdentity identity_;
  const LabFile& file_;
  const Progress& progress_;
  // By what `weft up --device` takes, and then by the name of the CDI device.
  std::map<std::string, std::map<std::string, launch::Environment>> devices_;
};

}  // namespace weft::labs
