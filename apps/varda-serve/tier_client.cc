#include "tier_client.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "net/certificates.h"

namespace varda::serve {
namespace {

constexpr std::chrono::seconds kRereadPeriod{1};

class TierClient final : public net::HttpClient {
 public:
  TierClient(net::ClientOptions options, TierFiles files, ReadFile read_file, const Clock& clock)
      : options_(std::move(options)),
        files_(std::move(files)),
        read_file_(std::move(read_file)),
        clock_(clock) {}

  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    TRY(const Current current, look());
    if (!current.token.empty() && (files_.ca.empty() || request.url.starts_with("https:")))
      request.headers.add("Authorization", "Bearer " + current.token);
    return current.client->send(ctx, std::move(request));
  }

 private:
  struct Texts {
    std::string ca, certificate, key, token;
    friend bool operator==(const Texts&, const Texts&) = default;
  };
  struct Current {
    std::shared_ptr<net::HttpClient> client;
    std::string token;
  };

  Result<std::string> text_of(const os::Path& path) const {
    if (path.empty()) return std::string();
    return read_file_(path);
  }

  Result<Texts> read() const {
    Texts texts;
    TRY(texts.ca, text_of(files_.ca).context("the authority of later tiers"));
    if (!files_.ca.empty()) TRY_VOID(net::certificate_facts(texts.ca).context(files_.ca.string()));
    TRY(texts.certificate, text_of(files_.certificate));
    TRY(texts.key, text_of(files_.key));
    if (!files_.certificate.empty())
      TRY_VOID(check_pair(texts.certificate, texts.key).context(files_.certificate.string()));
    TRY(const std::string tokens, text_of(files_.tokens).context("the token for later tiers"));
    if (!files_.tokens.empty()) {
      const std::vector<std::string> lines = token_lines(tokens);
      if (lines.empty()) return Error(Code::kInvalid, files_.tokens.string() + " has no token");
      texts.token = lines.front();
    }
    return texts;
  }

  void read_again() REQUIRES(mutex_) {
    read_at_ = clock_.now();
    Result<Texts> texts = read();
    const std::string problem = texts.ok() ? "" : texts.error().message();
    if (problem != problem_ && !problem.empty())
      log::warn("credentials for later tiers not usable", {{"error", problem}});
    problem_ = problem;
    if (!texts.ok() || (current_ && *texts == texts_)) return;
    texts_ = std::move(*texts);
    net::ClientOptions options = options_;
    options.tls = {
        .ca_pem = texts_.ca, .certificate_pem = texts_.certificate, .key_pem = texts_.key};
    current_ = Current{net::make_client(std::move(options)), texts_.token};
  }

  Result<Current> look() {
    MutexLock lock(mutex_);
    if (!read_at_ || clock_.now() - *read_at_ >= kRereadPeriod) read_again();
    if (!current_) return Error(Code::kUnavailable, problem_);
    return *current_;
  }

  const net::ClientOptions options_;
  const TierFiles files_;
  const ReadFile read_file_;
  const Clock& clock_;
  Mutex mutex_;
  std::optional<SteadyTime> read_at_ GUARDED_BY(mutex_);
  Texts texts_ GUARDED_BY(mutex_);
  std::optional<Current> current_ GUARDED_BY(mutex_);
  std::string problem_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<net::HttpClient> make_tier_client(net::ClientOptions options, TierFiles files,
                                                  ReadFile read_file, const Clock& clock) {
  return std::make_unique<TierClient>(std::move(options), std::move(files), std::move(read_file),
                                      clock);
}

}  // namespace varda::serve
