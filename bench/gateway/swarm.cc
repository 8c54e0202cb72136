#include "gateway/swarm.h"

#include <algorithm>
#include <ctime>
#include <deque>
#include <map>
#include <thread>

#include "base/mutex.h"
#include "base/rng.h"
#include "codec/json.h"
#include "net/internal/parser.h"
#include "net/internal/reactor.h"
#include "net/internal/socket.h"
#include "net/internal/stream.h"
#include "net/internal/tls_context.h"
#include "support/wire.h"

namespace varda::bench {
namespace {

using net::internal::IoResult;
using net::internal::Parser;
using net::internal::Reactor;
using net::internal::Stream;
using net::internal::TlsContext;
using std::chrono::milliseconds;

constexpr std::size_t kReportsMax = 2000;

/// One request on a separate connection. Belongs to the reactor's thread.
class Exchange final : public Reactor::Listener {
 public:
  struct Callbacks {
    std::function<void(int status)> header;
    std::function<void(std::string_view line)> line;
    /// Returns the next request for the same connection, or "" to close it. `whole` is false if the
    /// connection broke; then this is the last call.
    std::function<std::string(bool whole)> end;
  };
  Exchange(Reactor& reactor, const net::internal::Address& address, const TlsContext& tls,
           std::string request, Callbacks callbacks)
      : callbacks_(std::move(callbacks)),
        out_(std::move(request)),
        parser_(Parser::create(Parser::Kind::kResponse, {})) {
    auto fd = net::internal::start_connect(address);
    if (!fd.ok()) {
      failed_ = true;
      return;
    }
    stream_ = net::internal::tls_connect(fd->get(), tls,
                                         {.server_name = "127.0.0.1", .verified_name = {}})
                  .value();
    watch_ = reactor.watch(fd->release(), *this);
    watch_->want_write();
  }
  bool failed() const { return failed_; }

  void on_readable() override { go(); }
  void on_writable() override { go(); }

 private:
  enum class Phase { kConnect, kHandshake, kSend, kReceive };
  void go() {
    while (true) {
      IoResult io;
      if (phase_ == Phase::kConnect) {
        if (net::internal::socket_error(watch_->fd()) != 0) return end(false);
        phase_ = Phase::kHandshake;
      }
      if (phase_ == Phase::kHandshake) {
        io = stream_->handshake();
        if (io.kind == IoResult::Kind::kBytes) {
          phase_ = Phase::kSend;
          continue;
        }
      } else if (phase_ == Phase::kSend) {
        io = stream_->write(out_, {});
        if (io.kind == IoResult::Kind::kBytes) {
          out_.erase(0, io.count);
          if (out_.empty()) {
            out_ = std::string();
            phase_ = Phase::kReceive;
          }
          continue;
        }
      } else {
        static thread_local std::vector<char> scratch(64 << 10);
        io = stream_->read(scratch);
        if (io.kind == IoResult::Kind::kBytes) {
          if (!take({scratch.data(), io.count})) return;
          continue;
        }
      }
      if (io.kind == IoResult::Kind::kWantRead) return watch_->want_read();
      if (io.kind == IoResult::Kind::kWantWrite) return watch_->want_write();
      return end(false);
    }
  }
  /// False: the exchange has ended.
  bool take(std::string_view bytes) {
    in_.append(bytes);
    while (!in_.empty()) {
      const std::size_t used = parser_->feed(in_);
      in_.erase(0, used);
      if (parser_->error_status() != 0) return end(false), false;
      if (parser_->header_done() && !header_reported_) {
        header_reported_ = true;
        callbacks_.header(parser_->message().status);
      }
      lines_ += parser_->message().body;
      parser_->message().body.clear();
      for (std::size_t line; (line = lines_.find('\n')) != std::string::npos;
           lines_.erase(0, line + 1)) {
        callbacks_.line(std::string_view(lines_).substr(0, line));
      }
      if (parser_->done()) {
        std::string next = callbacks_.end(true);
        if (next.empty()) return false;
        // As in real clients, the next watch reuses the connection of a watch that ended normally.
        out_ = std::move(next);
        header_reported_ = false;
        parser_->reset();
        phase_ = Phase::kSend;
        return true;
      }
      if (used == 0) break;
    }
    if (in_.empty()) in_ = std::string();
    if (lines_.empty()) lines_ = std::string();
    return true;
  }
  void end(bool whole) { (void)callbacks_.end(whole); }

  Callbacks callbacks_;
  std::string out_, in_, lines_;
  std::unique_ptr<Parser> parser_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Reactor::Watch> watch_;
  Phase phase_ = Phase::kConnect;
  bool header_reported_ = false;
  bool failed_ = false;
};

}  // namespace

struct Swarm::Impl {
  struct Agent {
    std::string name;
    TlsContext tls;
    std::string version;           // start of the next watch
    std::string target, reported;  // of the work list, and as last reported
    milliseconds backoff{200}, report_backoff{200};
    bool watching = false, reporting = false;
    SteadyTime began;
    int status = 0;
    std::unique_ptr<Exchange> watch, report;
  };

  explicit Impl(Options o)
      : options(std::move(o)), address(net::internal::Address::parse(options.address).value()) {
    agents.resize(options.agents);
    for (std::size_t i = 0; i < agents.size(); ++i) {
      agents[i].name = name(i);
      const auto own = net::make_certificate(options.ca, {.common_name = agents[i].name,
                                                          .organizations = {"system:nodes"}})
                           .value();
      net::TlsClient tls;
      tls.ca_pem = options.ca.certificate_pem;
      tls.certificate_pem = own.certificate_pem;
      tls.key_pem = own.key_pem;
      agents[i].tls = net::internal::client_context(tls).value();
    }
    thread = std::thread([this] {
      reactor->run();
      for (Agent& agent : agents) agent.watch.reset(), agent.report.reset();
    });
    pthread_getcpuclockid(thread.native_handle(), &clock);
    reactor->post([this] {
      reactor->tick(milliseconds(5), [this] {
        const SteadyTime now = system_clock().now();
        while (!later.empty() && later.begin()->first <= now) {
          const auto work = std::move(later.begin()->second);
          later.erase(later.begin());
          work();
        }
        dead.clear();
        publish();
        return true;
      });
    });
  }
  ~Impl() {
    reactor->stop();
    thread.join();
  }

  std::string head(const char* method, const Agent& agent, const std::string& target) const {
    return std::string(method) + " " + target + " HTTP/1.1\r\nHost: " + options.address +
           "\r\nAccept: application/json\r\nUser-Agent: varda-agent/" + agent.name + "\r\n";
  }
  void after(Duration pause, std::function<void()> work) {
    later.emplace(system_clock().now() + pause, std::move(work));
  }
  Duration jittered(milliseconds& backoff) {
    const Duration pause =
        backoff + milliseconds(rng->below(static_cast<std::uint64_t>(backoff.count()) / 2 + 1));
    backoff = std::min(backoff * 2, milliseconds(5000));
    return pause;
  }

  std::string watch_request(Agent& agent) {
    const auto seconds = static_cast<std::uint64_t>(options.watch_timeout.count());
    std::string target =
        "/apis/edgeai.io/v1alpha1/edgenodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=" +
        std::to_string(seconds + rng->below(seconds / 2 + 1)) + "&fieldSelector=metadata.name%3D" +
        agent.name;
    if (!agent.version.empty()) target += "&resourceVersion=" + agent.version;
    agent.began = system_clock().now();
    agent.status = 0;
    return head("GET", agent, target) + "\r\n";
  }
  void watch(Agent& agent) {
    agent.watch = std::make_unique<Exchange>(
        *reactor, address, agent.tls, watch_request(agent),
        Exchange::Callbacks{[this, &agent](int status) {
                              agent.status = status;
                              agent.watching = status == 200;
                              ++(status == 200 ? now_.watches : now_.refused);
                              if (status == 410) agent.version.clear();
                            },
                            [this, &agent](std::string_view line) { event(agent, line); },
                            [this, &agent](bool whole) { return watch_ended(agent, whole); }});
    if (agent.watch->failed()) (void)watch_ended(agent, false);
  }
  void event(Agent& agent, std::string_view line) {
    if (agent.status != 200) return;
    const auto json = codec::parse_json(line);
    if (!json.ok()) die("a watch said what is no JSON");
    const codec::Json& object = (*json)["object"];
    const std::string& type = (*json)["type"].as_string();
    if (type == "ERROR") {
      agent.version.clear();
      return;
    }
    agent.version = object.at("metadata/resourceVersion").as_string();
    if (type == "BOOKMARK") return;
    if (object.at("metadata/name").as_string() != agent.name) ++now_.anonymous;
    for (const codec::Json& model : object.at("spec/models").as_array())
      agent.target = model["target"].as_string();
    report(agent);
  }
  std::string watch_ended(Agent& agent, bool whole) {
    // A watch that lasted ends normally, and the next one follows at once.
    const bool lived = system_clock().now() - agent.began > std::chrono::seconds(5);
    if (lived) agent.backoff = milliseconds(200);
    if (whole && lived) return watch_request(agent);
    if (!whole) ++now_.broken;
    dead.push_back(std::move(agent.watch));
    agent.watching = false;
    after(jittered(agent.backoff), [this, &agent] { watch(agent); });
    return "";
  }

  // Real agents are separate processes; here all sockets share one table of descriptors.
  void report(Agent& agent) {
    if (agent.reporting || agent.target == agent.reported) return;
    agent.reporting = true;
    if (reports < kReportsMax) {
      send(agent);
    } else {
      waiting.push_back(&agent);
    }
  }
  void report_over(Agent& agent) {
    agent.reporting = false;
    --reports;
    if (waiting.empty()) return;
    Agent& next = *waiting.front();
    waiting.pop_front();
    send(next);
  }
  void send(Agent& agent) {
    ++reports;
    const std::string body = "{\"status\":{\"agentVersion\":\"" + agent.target + "\"}}";
    const auto status = std::make_shared<int>(0);
    agent.report = std::make_unique<Exchange>(
        *reactor, address, agent.tls,
        head("PATCH", agent, "/apis/edgeai.io/v1alpha1/edgenodes/" + agent.name + "/status") +
            "Content-Type: application/merge-patch+json\r\nContent-Length: " +
            std::to_string(body.size()) + "\r\n\r\n" + body,
        Exchange::Callbacks{[this, status](int code) {
                              *status = code;
                              if (code != 200) ++now_.refused;
                            },
                            [](std::string_view) {},
                            [this, &agent, status, sent = agent.target](bool whole) {
                              const bool taken = whole && *status == 200;
                              if (!whole) ++now_.broken;
                              dead.push_back(std::move(agent.report));
                              report_over(agent);
                              if (taken) {
                                agent.reported = sent;
                                agent.report_backoff = milliseconds(200);
                                report(agent);
                              } else {
                                after(jittered(agent.report_backoff),
                                      [this, &agent] { report(agent); });
                              }
                              return std::string();
                            }});
    if (agent.report->failed()) {
      dead.push_back(std::move(agent.report));
      report_over(agent);
      after(jittered(agent.report_backoff), [this, &agent] { report(agent); });
    }
  }

  void publish() {
    MutexLock lock(mutex);
    shown = now_;
    shown.watching = 0;
    by_target.clear();
    for (const Agent& agent : agents) {
      if (agent.watching) ++shown.watching;
      if (agent.target == agent.reported) ++by_target[agent.target];
    }
  }

  const Options options;
  const net::internal::Address address;
  std::unique_ptr<Reactor> reactor = Reactor::create();
  std::unique_ptr<Rng> rng = seeded_rng(1);
  std::vector<Agent> agents;
  std::multimap<SteadyTime, std::function<void()>> later;
  std::vector<std::unique_ptr<Exchange>> dead;  // ended within one of their own callbacks
  std::size_t reports = 0;                      // in flight
  std::deque<Agent*> waiting;
  Counts now_;
  mutable Mutex mutex;
  Counts shown GUARDED_BY(mutex);
  std::map<std::string, std::size_t> by_target GUARDED_BY(mutex);
  std::thread thread;
  clockid_t clock{};
};

Swarm::Swarm(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Swarm::~Swarm() = default;

void Swarm::start() {
  impl_->reactor->post([this] {
    for (Impl::Agent& agent : impl_->agents) impl_->watch(agent);
  });
}

Swarm::Counts Swarm::counts(const std::string& target) const {
  MutexLock lock(impl_->mutex);
  Counts out = impl_->shown;
  const auto found = impl_->by_target.find(target);
  out.reported = found == impl_->by_target.end() ? 0 : found->second;
  return out;
}

double Swarm::wait(const char* what, std::chrono::seconds limit,
                   const std::function<bool()>& done) const {
  const SteadyTime begin = system_clock().now();
  while (!done()) {
    if (system_clock().now() - begin > limit) {
      const Counts now = counts("");
      die(std::string(what) + ": not within " + std::to_string(limit.count()) + " s; watching " +
          std::to_string(now.watching) + ", refused " + std::to_string(now.refused) + ", broken " +
          std::to_string(now.broken));
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  return std::chrono::duration<double>(system_clock().now() - begin).count();
}

double Swarm::cpu_seconds() const {
  timespec time{};
  clock_gettime(impl_->clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace varda::bench
