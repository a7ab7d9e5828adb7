// Owns measuring what connections of a network plugin of NCCL cost a process in memory.
//
//   weft_nccl_memory_bench PLUGIN [CONNECTIONS...]
//
// Two processes open so many connections in each direction, as two ranks of NCCL with so many
// channels do, and each carries a message. The table is one process's: each of its connections has
// one end that sends and one that receives. Buffers of messages are not in it: one, made before
// anything is counted, is registered for all.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "integration/collectives/net.hpp"

namespace weft::collectives {
namespace {

constexpr std::size_t kMessage = 4096;

void require(bool good, const char* what) {
  if (!good) {
    throw std::runtime_error(what);
  }
}
void require(Result result, const char* call) {
  if (result != nccl::abi::kSuccess) {
    throw std::runtime_error(std::string(call) + ": " + to_string(result));
  }
}

// Kilobytes of memory that is this process's own and that it has touched.
long anonymous_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "RssAnon:") {
      long kb = 0;
      status >> kb;
      return kb;
    }
  }
  throw std::runtime_error("/proc/self/status has no RssAnon");
}

class Side {
 public:
  Side(const std::string& plugin, int other) : other_(other), buffer_(2 * kMessage) {
    auto loaded = load_net(plugin, std::nullopt);
    if (!loaded) {
      throw std::runtime_error(loaded.error().message);
    }
    net_ = std::move(loaded->net);
    require(net_->init(), "init");
    int devices = 0;
    require(net_->devices(devices), "devices");
    require(devices > 0, "the plugin has no device");
  }

  void grow(std::size_t connections) {
    while (ends_.size() < connections) {
      ends_.push_back(open());
      exchange(ends_.back());
    }
    char ready = 1;  // neither goes on before both are here
    require(::write(other_, &ready, 1) == 1 && ::read(other_, &ready, 1) == 1, "the other side");
  }

 private:
  struct End {
    void* send = nullptr;
    void* send_memory = nullptr;
    void* receive = nullptr;
    void* receive_memory = nullptr;
  };

  End open() {
    Handle mine{};
    Handle theirs{};
    void* listener = nullptr;
    require(net_->listen(0, mine, listener), "listen");
    require(::write(other_, mine.data(), mine.size()) == static_cast<ssize_t>(mine.size()) &&
                ::recv(other_, theirs.data(), theirs.size(), MSG_WAITALL) ==
                    static_cast<ssize_t>(theirs.size()),
            "the other side");
    End made;
    while (made.send == nullptr || made.receive == nullptr) {
      if (made.send == nullptr) {
        require(net_->connect(0, theirs, made.send), "connect");
      }
      if (made.receive == nullptr) {
        require(net_->accept(listener, made.receive), "accept");
      }
    }
    require(net_->close_listener(listener), "closeListen");
    require(net_->register_memory(made.send, buffer_.data(), kMessage, made.send_memory), "regMr");
    require(net_->register_memory(made.receive, buffer_.data() + kMessage, kMessage,
                                  made.receive_memory),
            "regMr");
    return made;
  }

  void exchange(const End& end) {
    const Posted in{buffer_.data() + kMessage, kMessage, 0, end.receive_memory};
    const Posted out{buffer_.data(), kMessage, 0, end.send_memory};
    std::array<void*, 2> requests{};
    while (requests[0] == nullptr) {
      require(net_->receive(end.receive, {&in, 1}, false, requests[0]), "irecv");
    }
    while (requests[1] == nullptr) {
      require(net_->send(end.send, out, requests[1]), "isend");
    }
    for (void* const request : requests) {
      std::array<int, kMaxBuffers> sizes{};
      for (bool done = false; !done;) {
        require(net_->test(request, done, sizes), "test");
      }
    }
  }

  int other_;
  std::vector<char> buffer_;
  std::unique_ptr<Net> net_;
  std::vector<End> ends_;
};

void run(const std::string& plugin, const std::vector<std::size_t>& counts, int other,
         bool prints) {
  Side side(plugin, other);
  side.grow(1);
  long before_kb = anonymous_kb();
  std::size_t before = 1;
  if (prints) {
    std::printf("%12s %14s %28s\n%12d %11ld KB\n", "connections", "own memory",
                "of each one since the last", 1, before_kb);
  }
  for (const std::size_t count : counts) {
    side.grow(count);
    const long kb = anonymous_kb();
    if (prints) {
      std::printf("%12zu %11ld KB %25.1f KB\n", count, kb,
                  static_cast<double>(kb - before_kb) / static_cast<double>(count - before));
    }
    before = count;
    before_kb = kb;
  }
}

int bench(const std::string& plugin, const std::vector<std::size_t>& counts) {
  std::array<int, 2> pair{};
  require(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0, "socketpair");
  const pid_t child = ::fork();
  require(child >= 0, "fork");
  const bool prints = child != 0;
  ::close(pair[prints ? 1 : 0]);
  if (!prints) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  try {
    run(plugin, counts, pair[prints ? 0 : 1], prints);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "%s\n", error.what());
    if (prints) {
      ::kill(child, SIGKILL);
    }
    return 1;
  }
  int status = 0;
  // The ends of a process that leaves are no matter of the count, and both leave at once.
  return prints && (::waitpid(child, &status, 0) != child || status != 0) ? 1 : 0;
}

}  // namespace
}  // namespace weft::collectives

int main(int argc, char** argv) {
  std::vector<std::size_t> counts;
  for (int i = 2; i < argc; ++i) {
    counts.push_back(std::strtoull(argv[i], nullptr, 10));
    if (counts.back() <= (counts.size() == 1 ? 1 : counts[counts.size() - 2])) {
      argc = 0;  // growing numbers only
    }
  }
  if (argc < 2) {
    (void)std::fprintf(stderr,
                       "usage: weft_nccl_memory_bench PLUGIN [CONNECTIONS...]\n"
                       "CONNECTIONS: growing numbers from 2 on; else 64 256 1024\n");
    return 2;
  }
  return weft::collectives::bench(
      argv[1], counts.empty() ? std::vector<std::size_t>{64, 256, 1024} : counts);
}
