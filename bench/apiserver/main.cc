// varda_bench_apiserver [--json FILE] [creates|gets|lists|watches|objects]...   (default: all)
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "apiserver/cases.h"

namespace varda::bench {

std::string config_map(const std::string& name) {
  std::string data(764, 'x');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>('a' + (i * 7) % 26);
  return R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":")" + name +
         R"(","namespace":"default","labels":{"app":"bench","tier":"edge"}},"data":{"text":")" +
         data + R"("}})";
}

void fill(const Endpoint& endpoint, const std::string& prefix, int count) {
  Wire wire(endpoint.port, endpoint.security);
  for (int i = 0; i < count; ++i)
    (void)wire.exchange(
        request("POST", kConfigMaps, endpoint.token, config_map(prefix + std::to_string(i))), 201);
}

namespace {

int run(int argc, char** argv) {
  for (const auto& [command, security] :
       {std::pair("serve-plain", Security::kPlain), std::pair("serve-tls", Security::kTls)}) {
    if (argc == 4 && std::strcmp(argv[1], command) == 0)
      return serve(argv[2], security, std::chrono::microseconds(std::atol(argv[3])));
  }
  std::signal(SIGPIPE, SIG_IGN);
  const std::map<std::string, void (*)(Report&)> cases = {{"creates", measure_creates},
                                                          {"gets", measure_gets},
                                                          {"lists", measure_lists},
                                                          {"watches", measure_watches},
                                                          {"objects", measure_objects}};
  std::string json;
  std::vector<std::string> chosen;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (cases.contains(argv[i])) {
      chosen.emplace_back(argv[i]);
    } else {
      die(std::string("unknown argument ") + argv[i]);
    }
  }
  if (chosen.empty()) chosen = {"creates", "gets", "lists", "watches", "objects"};
  Report report("apiserver");
  for (const std::string& name : chosen) {
    std::fprintf(stderr, "measuring %s\n", name.c_str());
    cases.at(name)(report);
  }
  report.print(json);
  return 0;
}

}  // namespace
}  // namespace varda::bench

int main(int argc, char** argv) { return varda::bench::run(argc, argv); }
