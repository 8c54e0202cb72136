// The gateway with 1,000 and 10,000 agents: a reconnect storm after a restart, work that changed
// meanwhile, and the memory per idle agent. Real sockets with TLS and client certificates over
// loopback. The API server and the gateway run in a separate process, the agents in this one.
//
//   varda_bench_gateway [AGENTS]...      1000 and 10000 by default
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <malloc.h>
#include <set>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "codec/yaml.h"
#include "gateway/gateway.h"
#include "gateway/swarm.h"
#include "kube/client.h"
#include "net/server.h"
#include "support/report.h"
#include "support/wire.h"

namespace varda::bench {

void die(const std::string& what) {
  std::fprintf(stderr, "varda_bench_gateway: %s\n", what.c_str());
  std::_Exit(1);  // threads still run
}

namespace {

using codec::Json;

constexpr const char* kEdgeNodes = "/apis/edgeai.io/v1alpha1/edgenodes";

/// The other process: an API server in memory and a gateway. It executes commands, one per line,
/// and answers each with a line.
class Cloud {
 public:
  Cloud(int in, int out, net::KeyPair ca)
      : in_(::fdopen(in, "r")), out_(::fdopen(out, "w")), ca_(std::move(ca)) {
    std::string crds;
    for (const Json& crd : api::crds()) crds += "---\n" + codec::write_yaml(crd);
    api_.install_crds(crds);
  }
  void serve() {
    char line[256];
    while (std::fgets(line, sizeof line, in_)) {
      const std::string answer = obey(line);
      std::fprintf(out_, "%s\n", answer.c_str());
      std::fflush(out_);
    }
  }

 private:
  std::string obey(const std::string& line) {
    char command[64] = "";
    long number = 0;
    std::sscanf(line.c_str(), "%63s %ld", command, &number);
    const std::string what = command;
    if (what == "make") return make(static_cast<std::size_t>(number));
    if (what == "up") return up();
    if (what == "down") return down();
    if (what == "want") return want(number);
    if (what == "right") return right(number);
    if (what == "rss") return rss();
    if (what == "cpu") return std::to_string(cpu());
    return "?";
  }
  std::string make(std::size_t count) {
    for (std::size_t i = made_; i < count; ++i) {
      const Json object = Json::object({{"apiVersion", "edgeai.io/v1alpha1"},
                                        {"kind", "EdgeNode"},
                                        {"metadata", Json::object({{"name", Swarm::name(i)}})},
                                        {"spec", Json::object()}});
      if (api_.post(kEdgeNodes, object).status != 201) return "cannot make an EdgeNode";
    }
    made_ = count;
    return "ok";
  }
  std::string up() {
    gateway_ = gateway::Gateway::create({.client = &client_}).value();
    while (!gateway_->ready()) ::usleep(1000);
    net::Server::Options listen = gateway::server_options();
    listen.listen = address_;
    const auto own = net::make_certificate(
                         ca_, {.common_name = "gateway", .hosts = {"127.0.0.1"}, .server = true})
                         .value();
    listen.tls = net::TlsServer{own.certificate_pem, own.key_pem, ca_.certificate_pem};
    server_ = net::Server::create(listen, gateway_->handler()).value();
    address_ = server_->address();
    return address_;
  }
  std::string down() {
    server_->stop(std::chrono::milliseconds(0));
    server_.reset();
    gateway_.reset();
    return "ok";
  }
  std::string want(long target) {
    for (std::size_t i = 0; i < made_; ++i) {
      const Json model = Json::object(
          {{"key", "default/digits"},
           {"modelName", "digits"},
           {"framework", "onnx"},
           {"target", std::to_string(target)},
           {"versions", Json::array({Json::object({{"version", std::to_string(target)},
                                                   {"url", "https://files.example/digits.tar.gz"},
                                                   {"sha256", std::string(64, 'a')}})})}});
      const auto answer = api_.merge_patch(
          std::string(kEdgeNodes) + "/" + Swarm::name(i),
          Json::object({{"spec", Json::object({{"models", Json::array({model})}})}}));
      if (answer.status != 200) return answer.text;
    }
    return "ok";
  }
  std::string right(long target) {
    std::size_t count = 0;
    const Json list = api_.get(kEdgeNodes).body;
    for (const Json& node : list["items"].as_array()) {
      if (node.at("status/agentVersion").as_string() == std::to_string(target)) ++count;
    }
    return std::to_string(count);
  }
  static std::string rss() {
    ::malloc_trim(0);
    long pages = 0, resident = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    const int read = std::fscanf(file, "%ld %ld", &pages, &resident);
    std::fclose(file);
    return read == 2 ? std::to_string(resident * ::sysconf(_SC_PAGESIZE)) : "?";
  }
  static double cpu() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

  std::FILE* in_;
  std::FILE* out_;
  const net::KeyPair ca_;
  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {.field_manager = "varda-gateway"}};
  std::size_t made_ = 0;
  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<gateway::Gateway> gateway_;
  std::unique_ptr<net::Server> server_;
};

/// This process's view of the cloud process.
class Remote {
 public:
  /// Must run before this process starts threads.
  explicit Remote(const net::KeyPair& ca) {
    int requests[2], back[2];
    if (::pipe(requests) != 0 || ::pipe(back) != 0) die("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(requests[1]);
      ::close(back[0]);
      Cloud(requests[0], back[1], ca).serve();
      std::exit(0);
    }
    ::close(requests[0]);
    ::close(back[1]);
    out_ = ::fdopen(requests[1], "w");
    in_ = ::fdopen(back[0], "r");
  }
  ~Remote() {
    std::fclose(out_);
    ::waitpid(pid_, nullptr, 0);
    std::fclose(in_);
  }
  std::string call(const std::string& line) {
    std::fprintf(out_, "%s\n", line.c_str());
    std::fflush(out_);
    char answer[256];
    if (!std::fgets(answer, sizeof answer, in_)) die("the cloud has gone at: " + line);
    std::string text = answer;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  void command_cloud(const std::string& line) {
    if (const std::string answer = call(line); answer != "ok") die(line + ": " + answer);
  }
  double number(const std::string& line) { return std::strtod(call(line).c_str(), nullptr); }

 private:
  pid_t pid_ = 0;
  std::FILE* out_ = nullptr;
  std::FILE* in_ = nullptr;
};

void run(std::size_t agents, double storm_aim, Report& report) {
  const net::KeyPair ca = net::make_ca("edge", std::chrono::hours(24)).value();
  Remote cloud(ca);
  const std::string count = std::to_string(agents);
  cloud.command_cloud("make " + count);
  const double before = cloud.number("rss");
  const std::string address = cloud.call("up");
  Swarm swarm({.agents = agents, .address = address, .ca = ca});
  const auto all_watch = [&] { return swarm.counts("").watching == agents; };
  const auto all_reported = [&](const std::string& target) {
    return swarm.counts(target).reported == agents &&
           cloud.number("right " + target) == static_cast<double>(agents);
  };
  const std::string of = " of " + count + " agents";

  double cpu = cloud.number("cpu"), own_cpu = swarm.cpu_seconds();
  swarm.start();
  const double first = swarm.wait("the first connections", std::chrono::seconds(120), all_watch);
  report.add({.what = "first connections" + of, .measured = first, .unit = "s"});
  report.add(
      {.what = "  processor time, cloud", .measured = cloud.number("cpu") - cpu, .unit = "s"});
  report.add(
      {.what = "  processor time, agents", .measured = swarm.cpu_seconds() - own_cpu, .unit = "s"});
  const double idle = (cloud.number("rss") - before) / static_cast<double>(agents) / 1024;
  report.add(
      {.what = "memory of the gateway for one idle agent, TLS and its EdgeNode included" + of,
       .measured = idle,
       .unit = "KiB",
       .aim = "≤ 40",
       .met = idle <= 40});

  // Ten idle seconds: every agent's watch ends and restarts, on its connection or a new one.
  cpu = cloud.number("cpu");
  ::sleep(10);
  report.add({.what = "processor time of the gateway for 10 s while idle" + of,
              .measured = cloud.number("cpu") - cpu,
              .unit = "s"});

  cloud.command_cloud("want 1");
  const double reported =
      swarm.wait("news", std::chrono::seconds(120), [&] { return all_reported("1"); });
  report.add({.what = "from the last change of all EdgeNodes to every report stored" + of,
              .measured = reported,
              .unit = "s"});

  cloud.command_cloud("down");
  cpu = cloud.number("cpu");
  own_cpu = swarm.cpu_seconds();
  cloud.call("up");
  const double storm = swarm.wait("the storm", std::chrono::seconds(120), all_watch);
  report.add({.what = "storm after a restart: all watch again" + of,
              .measured = storm,
              .unit = "s",
              .aim = "< " + std::to_string(static_cast<int>(storm_aim)),
              .met = storm < storm_aim});
  report.add(
      {.what = "  processor time, cloud", .measured = cloud.number("cpu") - cpu, .unit = "s"});
  report.add(
      {.what = "  processor time, agents", .measured = swarm.cpu_seconds() - own_cpu, .unit = "s"});

  cloud.command_cloud("down");
  cloud.command_cloud("want 2");
  cpu = cloud.number("cpu");
  own_cpu = swarm.cpu_seconds();
  cloud.call("up");
  const double work = swarm.wait("the storm with work", std::chrono::seconds(120),
                                 [&] { return all_watch() && all_reported("2"); });
  report.add({.what = "storm with work that changed meanwhile: all watch, every report stored" + of,
              .measured = work,
              .unit = "s",
              .aim = "< " + std::to_string(static_cast<int>(storm_aim)),
              .met = work < storm_aim});
  report.add(
      {.what = "  processor time, cloud", .measured = cloud.number("cpu") - cpu, .unit = "s"});
  report.add(
      {.what = "  processor time, agents", .measured = swarm.cpu_seconds() - own_cpu, .unit = "s"});
  const auto end = swarm.counts("2");
  if (end.anonymous != 0) die("agents saw objects of others");
  std::fprintf(stderr,
               "%zu agents: %zu watches answered, %zu requests refused, %zu connections broken\n",
               agents, end.watches, end.refused, end.broken);
}

}  // namespace
}  // namespace varda::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::vector<std::size_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {1000, 10000};
  varda::bench::Report report("gateway");
  for (const std::size_t agents : sizes) {
    if (agents == 0 || agents + 2500 > files.rlim_cur)
      varda::bench::die("so many agents need a larger `ulimit -n`");
    varda::bench::run(agents, agents <= 1000 ? 5 : 30, report);
  }
  report.print("");
  return 0;
}
