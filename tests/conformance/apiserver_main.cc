// The API server alone, for the conformance cases: what `varda apiserver` runs, without the rest of
// the program.
//
//   conformance_apiserver DIR [LISTEN]     prints "ready URL KUBECONFIG" and serves until SIGTERM
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "apiserver/standalone.h"
#include "base/log.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIR [LISTEN]\n", argv[0]);
    return 2;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::stop_source stop;
  std::jthread waiter([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    stop.request_stop();
  });
  varda::apiserver::StandaloneOptions options;
  options.data_dir = argv[1];
  options.listen = argc > 2 ? argv[2] : "127.0.0.1:0";
  options.ready = [](const std::string& url, const varda::os::Path& kubeconfig) {
    std::printf("ready %s %s\n", url.c_str(), kubeconfig.c_str());
    std::fflush(stdout);
  };
  const varda::Status served =
      varda::apiserver::run_standalone(varda::Context(stop.get_token()), std::move(options));
  if (!served.ok()) {
    varda::log::error("the API server ended", {{"error", served.error()}});
    pthread_kill(waiter.native_handle(), SIGTERM);
    return 1;
  }
  return 0;
}
