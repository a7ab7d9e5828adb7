// Owns the sign by which others see that a process listens for connections of rdma_cm, as it would
// show in the table of TCP's sockets: a descriptor of that name, while there is a listening id.
#pragma once

namespace weft::devices {

inline constexpr char kListeningSign[] = "weft-listens";
// Where /proc/PID/fd/N of it leads.
inline constexpr char kListeningLink[] = "/memfd:weft-listens (deleted)";

}  // namespace weft::devices
