// doctor: checks an installation and suggests remedies. Room cli does the checks; this file
// connects to the gateway.
#include <memory>

#include "api/kind.h"
#include "cli/doctor.h"
#include "client_session.h"
#include "command.h"
#include "net/client.h"

namespace varda::app {
namespace {

struct DoctorFlags {
  std::string ns, output, gateway;
};

// Any answer proves that the gateway has a certificate of the edge's authority.
Status try_gateway(const Context& ctx, const std::string& url, const std::string& ca_pem) {
  if (!url.starts_with("https://"))
    return Error(Code::kInvalid, "a gateway's URL must begin with https://");
  if (ca_pem.empty()) {
    return Error(Code::kUnavailable,
                 "the certificate of the gateway cannot be checked: the ConfigMap "
                 "varda-system/varda-gateway has no ca.crt");
  }
  net::ClientOptions options;
  options.tls.ca_pem = ca_pem;
  options.tls.verified_name = "varda-gateway";  // a name in the certificate of every gateway
  options.connect_timeout = std::chrono::seconds(5);
  const std::unique_ptr<net::HttpClient> client = net::make_client(std::move(options));
  auto answer = client->send(ctx.with_timeout(std::chrono::seconds(10)), {.url = url + "/healthz"});
  return answer.ok() ? Status() : Status(answer.error());
}

}  // namespace

void add_doctor_command(Program program) {
  const auto flags = std::make_shared<DoctorFlags>();
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* doctor = program.parser.add_subcommand(
      "doctor", "check an installation and print remedies; also works before installation");
  doctor->add_option("--kubeconfig", globals.kubeconfig, kKubeconfigHelp);
  doctor->add_option("-n,--namespace", flags->ns,
                     "the namespace of your models, for permissions; default: the kubeconfig's");
  doctor->add_option("--gateway", flags->gateway,
                     "also try the gateway at this address, as nodes see it: https://HOST:30443");
  doctor->add_option("-o,--output", flags->output, "json")->check(CLI::IsMember({"json"}));
  doctor->callback([&globals, &chosen, flags] {
    chosen = [&globals, flags](const Context& ctx) -> Status {
      cli::DoctorOptions options;
      TRY(options.output, cli::Output::parse(flags->output));
      options.version = VARDA_VERSION;
      options.crds = api::crds();
      options.gateway_url = flags->gateway;
      options.now = system_clock().wall();
      options.try_gateway = try_gateway;
      return with_session(ctx, globals, {.ns = flags->ns, .all_namespaces = false},
                          [&](const Context& c, cli::Session& session) {
                            return cli::doctor(c, session, options);
                          });
    };
  });
}

}  // namespace varda::app
