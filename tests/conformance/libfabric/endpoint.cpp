// Owns opening an endpoint, finding the peer through files, and waiting with a limit.
#include "tests/conformance/libfabric/endpoint.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

namespace weft::conformance {
namespace {

// Beyond the tags of all cases: a barrier is a pair of tagged messages beside those of the case.
constexpr std::uint64_t kBarrierTag = 1ULL << 40;
constexpr std::chrono::seconds kPatience{60};

// Ends the program with a message when something takes too long: a hang would tell nothing.
class Limit {
 public:
  explicit Limit(const char* what) : what_(what) {}
  void check() const {
    if (std::chrono::steady_clock::now() > end_) {
      give_up(std::string("waited too long for ") + what_);
    }
  }

 private:
  const char* what_;
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + kPatience;
};

std::uint8_t pattern(std::uint32_t seed, std::size_t at) {
  return static_cast<std::uint8_t>((seed * 131 + at * 7 + (at >> 8) * 13) & 0xFF);
}

}  // namespace

// Without exit handlers: the provider's may wait for a peer that has gone.
void give_up(const std::string& what) {
  std::fprintf(stderr, "rank %d: %s\n", Endpoint::rank(), what.c_str());
  std::_Exit(1);
}

void require(bool condition, const std::string& what) {
  if (!condition) {
    give_up(what);
  }
}

void require_ok(std::int64_t result, const std::string& call) {
  if (result != 0) {
    give_up(call + ": " + fi_strerror(static_cast<int>(-result)));
  }
}

Buffer::Buffer(fid_domain* domain, std::size_t size) : bytes_(size == 0 ? 1 : size) {
  // Distinct keys, for a provider that leaves the choice to its caller.
  static std::uint64_t next_key = 1;
  require_ok(fi_mr_reg(domain, bytes_.data(), bytes_.size(),
                       FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                       next_key++, 0, &region_, nullptr),
             "fi_mr_reg");
}

Buffer::~Buffer() { fi_close(&region_->fid); }

void Buffer::fill(std::uint32_t seed) {
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    bytes_[i] = pattern(seed, i);
  }
}

void Buffer::check(std::uint32_t seed, std::size_t offset, std::size_t length) const {
  for (std::size_t i = 0; i < length; ++i) {
    if (bytes_[offset + i] != pattern(seed, i)) {
      give_up("byte " + std::to_string(i) + " of " + std::to_string(length) + " is wrong");
    }
  }
}

bool Buffer::is_clear(std::size_t offset, std::size_t length) const {
  const auto from = bytes_.begin() + static_cast<std::ptrdiff_t>(offset);
  return std::all_of(from, from + static_cast<std::ptrdiff_t>(length),
                     [](std::uint8_t byte) { return byte == 0; });
}

int Endpoint::round = 0;

int Endpoint::rank() {
  const char* const text = std::getenv("WEFT_RANK");
  return text == nullptr ? 0 : std::atoi(text);
}
int Endpoint::ranks() {
  const char* const text = std::getenv("WEFT_CASE_RANKS");
  return text == nullptr ? 2 : std::atoi(text);
}

Endpoint::Endpoint(const std::string& label) {
  fi_info* const hints = fi_allocinfo();
  hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->mode = FI_CONTEXT;
  hints->fabric_attr->prov_name = strdup("efa");
  require_ok(fi_getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints, &info), "fi_getinfo");
  fi_freeinfo(hints);
  require_ok(fi_fabric(info->fabric_attr, &fabric_, nullptr), "fi_fabric");
  require_ok(fi_domain(fabric_, info, &domain, nullptr), "fi_domain");
  fi_cq_attr cq{};
  cq.format = FI_CQ_FORMAT_TAGGED;
  cq.size = 4096;
  require_ok(fi_cq_open(domain, &cq, &cq_, nullptr), "fi_cq_open");
  fi_av_attr av{};
  av.type = FI_AV_TABLE;
  require_ok(fi_av_open(domain, &av, &av_, nullptr), "fi_av_open");
  fi_cntr_attr counter{};
  counter.events = FI_CNTR_EVENTS_COMP;
  require_ok(fi_cntr_open(domain, &counter, &sends, nullptr), "fi_cntr_open");
  require_ok(fi_cntr_open(domain, &counter, &receives, nullptr), "fi_cntr_open");
  require_ok(fi_cntr_open(domain, &counter, &writes, nullptr), "fi_cntr_open");
  require_ok(fi_cntr_open(domain, &counter, &reads, nullptr), "fi_cntr_open");
  require_ok(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
  require_ok(fi_ep_bind(ep, &cq_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind cq");
  require_ok(fi_ep_bind(ep, &av_->fid, 0), "fi_ep_bind av");
  // Without one the provider aborts when a message of its own, and not of ours, finds the peer
  // dead.
  fi_eq_attr events{};
  require_ok(fi_eq_open(fabric_, &events, &eq_, nullptr), "fi_eq_open");
  require_ok(fi_ep_bind(ep, &eq_->fid, 0), "fi_ep_bind eq");
  require_ok(fi_ep_bind(ep, &sends->fid, FI_SEND), "fi_ep_bind counter");
  require_ok(fi_ep_bind(ep, &receives->fid, FI_RECV), "fi_ep_bind counter");
  require_ok(fi_ep_bind(ep, &writes->fid, FI_WRITE), "fi_ep_bind counter");
  require_ok(fi_ep_bind(ep, &reads->fid, FI_READ), "fi_ep_bind counter");
  require_ok(fi_enable(ep), "fi_enable");
  find_peers(label);
}

std::string Endpoint::path(const std::string& what, int who) const {
  return std::string(std::getenv("WEFT_CASE_DIR")) + "/" + std::to_string(round) + "-" + label_ +
         "." + std::to_string(who) + what;
}

void Endpoint::meet_at(const std::string& place) {
  // By files and not by messages: the last message would have to be acknowledged by an end that is
  // about to leave.
  std::ofstream(path(place, rank())).put('.');
  const Limit limit("the others to come as far");
  for (int other = 0; other < ranks(); ++other) {
    for (std::ifstream file; !file.is_open(); limit.check()) {
      file.open(path(place, other));
      // Takes no completion, and still makes the provider progress, which the peer's last
      // operations may need.
      fi_cq_read(cq_, nullptr, 0);
      ::poll(nullptr, 0, 1);
    }
  }
}

void Endpoint::part() { meet_at(".parted"); }

Endpoint::~Endpoint() {
  part();
  for (fid* const object : {&ep->fid, &eq_->fid, &sends->fid, &receives->fid, &writes->fid,
                            &reads->fid, &av_->fid, &cq_->fid, &domain->fid, &fabric_->fid}) {
    fi_close(object);
  }
  fi_freeinfo(info);
}

fi_addr_t Endpoint::insert_address_of(int other) {
  const Limit limit("a peer's address");
  std::ifstream file;
  for (file.open(path("", other)); !file.is_open(); limit.check()) {
    ::poll(nullptr, 0, 1);
    file.open(path("", other));
  }
  const std::string name(std::istreambuf_iterator<char>(file), {});
  fi_addr_t address = FI_ADDR_UNSPEC;
  require(fi_av_insert(av_, name.data(), 1, &address, 0, nullptr) == 1, "fi_av_insert");
  return address;
}

void Endpoint::find_peers(const std::string& label) {
  label_ = label;
  std::vector<char> name(256);
  std::size_t length = name.size();
  require_ok(fi_getname(&ep->fid, name.data(), &length), "fi_getname");
  const std::string own = path("", rank());
  // Written beside and renamed, so that no peer reads a half of it.
  std::ofstream(own + ".part").write(name.data(), static_cast<std::streamsize>(length));
  require(std::rename((own + ".part").c_str(), own.c_str()) == 0, "cannot write the address");
  addresses_.assign(static_cast<std::size_t>(ranks()), FI_ADDR_UNSPEC);
  for (int other = 0; other < ranks(); ++other) {
    if (other != rank()) {
      addresses_[static_cast<std::size_t>(other)] = insert_address_of(other);
    }
  }
  peer = address_of((rank() + 1) % ranks());
}

// Both remove the address between the first two meetings and insert it between the last two:
// neither sends to an end that does not know it.
void Endpoint::forget_and_meet_again() {
  const std::string time = std::to_string(meetings_++);
  meet_at(".before" + time);
  require_ok(fi_av_remove(av_, &peer, 1, 0), "fi_av_remove");
  meet_at(".between" + time);
  peer = insert_address_of(1 - rank());
  addresses_[static_cast<std::size_t>(1 - rank())] = peer;
  meet_at(".after" + time);
}

bool Endpoint::poll(fi_cq_tagged_entry& entry) {
  if (early_.empty()) {
    return take(entry);
  }
  entry = early_.front();
  early_.pop_front();
  return true;
}

void Endpoint::wait_until(const std::function<bool()>& condition, const std::string& what) {
  for (const Limit limit(what.c_str()); !condition(); limit.check()) {
    fi_cq_tagged_entry entry{};
    if (take(entry)) {
      early_.push_back(entry);
    }
  }
}

bool Endpoint::take(fi_cq_tagged_entry& entry) {
  const ssize_t count = fi_cq_read(cq_, &entry, 1);
  if (count == -FI_EAVAIL) {
    const fi_cq_err_entry error = wait_error();
    give_up(std::string("error completion: ") + fi_strerror(error.err));
  }
  return count == 1;
}

void Endpoint::post(const std::function<ssize_t()>& call) {
  const Limit limit("room for a request");
  for (ssize_t result = call(); result != 0; result = call()) {
    require(result == -FI_EAGAIN,
            std::string("posting: ") + fi_strerror(static_cast<int>(-result)));
    fi_cq_tagged_entry entry{};
    if (take(entry)) {
      early_.push_back(entry);
    }
    limit.check();
  }
}

fi_cq_tagged_entry Endpoint::wait() {
  fi_cq_tagged_entry entry{};
  if (!early_.empty()) {
    entry = early_.front();
    early_.pop_front();
    return entry;
  }
  for (const Limit limit("a completion"); !take(entry);) {
    limit.check();
  }
  return entry;
}

fi_cq_err_entry Endpoint::wait_error() {
  fi_cq_err_entry error{};
  fi_cq_tagged_entry entry{};
  const Limit limit("an error completion");
  while (fi_cq_readerr(cq_, &error, 0) != 1) {
    if (fi_cq_read(cq_, &entry, 1) == 1) {
      early_.push_back(entry);
    }
    limit.check();
  }
  return error;
}

void Endpoint::wait_for(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    (void)wait();
  }
}

std::vector<std::uint64_t> Endpoint::exchange(const std::vector<std::uint64_t>& words) {
  const std::size_t bytes = words.size() * sizeof(std::uint64_t);
  Buffer out(domain, bytes);
  Buffer in(domain, bytes);
  std::memcpy(out.data(), words.data(), bytes);
  fi_context contexts[2];
  post([&] {
    return fi_trecv(ep, in.data(), bytes, in.desc(), peer, kBarrierTag, 0, &contexts[0]);
  });
  post(
      [&] { return fi_tsend(ep, out.data(), bytes, out.desc(), peer, kBarrierTag, &contexts[1]); });
  // Completions of the case may come between the two; they are kept in their order.
  std::deque<fi_cq_tagged_entry> others;
  for (int done = 0; done < 2;) {
    const fi_cq_tagged_entry entry = wait();
    if (entry.op_context == &contexts[0] || entry.op_context == &contexts[1]) {
      ++done;
    } else {
      others.push_back(entry);
    }
  }
  early_.insert(early_.end(), others.begin(), others.end());
  std::vector<std::uint64_t> got(words.size());
  std::memcpy(got.data(), in.data(), bytes);
  return got;
}

void Endpoint::barrier() { (void)exchange({static_cast<std::uint64_t>(rank())}); }

}  // namespace weft::conformance
