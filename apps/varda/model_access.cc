#include "model_access.h"

#include <utility>

#include "net/certificates.h"
#include "os/file_system.h"
#include "resolved_file.h"

namespace varda::app {
namespace {

constexpr std::uint64_t kFileBytesMax = 1u << 20;

class TokenClient final : public net::HttpClient {
 public:
  TokenClient(std::unique_ptr<net::HttpClient> client, const std::string& token)
      : client_(std::move(client)), header_("Bearer " + token) {}
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    request.headers.add("Authorization", header_);
    return client_->send(ctx, std::move(request));
  }

 private:
  const std::unique_ptr<net::HttpClient> client_;
  const std::string header_;
};

Result<std::string> text_of_flag(const char* flag, const std::string& path) {
  if (path.empty()) return std::string();
  auto text = os::read_file(os::real_file_system(), followed(path), kFileBytesMax);
  if (!text.ok()) return std::move(text).error().context(flag);
  return text;
}

}  // namespace

void add_model_access_flags(CLI::App& command, ModelAccessFlags& flags) {
  constexpr const char* kGroup = "Access to a closed model";
  command
      .add_option("--ca-file", flags.ca_file,
                  "PEM certificates to trust, besides the machine's; default: ca.crt of the "
                  "model's Secret, if you may read it")
      ->group(kGroup);
  command
      .add_option("--token-file", flags.token_file,
                  "file of tokens, one a line; the first is sent with each request")
      ->group(kGroup);
  command
      .add_option("--cert", flags.cert,
                  "PEM file of a client certificate and its chain, with --key")
      ->group(kGroup);
  command.add_option("--key", flags.key, "PEM file of the certificate's private key")
      ->group(kGroup);
}

Result<ModelAccess> read_model_access(const ModelAccessFlags& flags) {
  if (flags.cert.empty() != flags.key.empty())
    return Error(Code::kInvalid, "--cert and --key go together");
  ModelAccess out;
  TRY(out.ca_pem, text_of_flag("--ca-file", flags.ca_file));
  if (!flags.ca_file.empty()) TRY_VOID(net::certificate_facts(out.ca_pem).context("--ca-file"));
  TRY(out.certificate_pem, text_of_flag("--cert", flags.cert));
  TRY(out.key_pem, text_of_flag("--key", flags.key));
  if (!flags.cert.empty()) {
    TRY(const net::CertificateFacts facts,
        net::certificate_facts(out.certificate_pem).context("--cert"));
    TRY(const std::string key, net::key_sha256(out.key_pem).context("--key"));
    if (key != facts.key_sha256)
      return Error(Code::kInvalid, "--key does not belong to the certificate of --cert");
  }
  TRY(const std::string tokens, text_of_flag("--token-file", flags.token_file));
  out.token = tokens.substr(0, tokens.find('\n'));
  while (out.token.ends_with('\r') || out.token.ends_with(' ')) out.token.pop_back();
  if (!flags.token_file.empty() && out.token.empty())
    return Error(Code::kInvalid, "--token-file: no token in its first line");
  return out;
}

std::unique_ptr<net::HttpClient> make_model_client(const ModelAccess& access,
                                                   std::size_t idle_connections_max) {
  auto client = net::make_client(
      {.tls = {.certificate_pem = access.certificate_pem, .key_pem = access.key_pem},
       .extra_ca_pem = access.ca_pem,
       .idle_connections_max = idle_connections_max});
  if (access.token.empty()) return client;
  return std::make_unique<TokenClient>(std::move(client), access.token);
}

}  // namespace varda::app
