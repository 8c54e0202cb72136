#include "participant/internal/secure_session.h"

#include <utility>

#include "base/log.h"
#include "federated/masked_update.h"

namespace varda::participant {

using codec::Json;

namespace {

constexpr std::int64_t kSumClientsMax = 1 << 20;

/// Nothing: the round cannot end, or continues without this client.
std::unique_ptr<SecureSession> no_session() { return nullptr; }

}  // namespace

Result<std::unique_ptr<SecureSession>> SecureSession::join(const Task& task,
                                                           const SecureIdentity& identity,
                                                           const Exchange& exchange) {
  const Task::Secure& secure = *task.secure;
  std::unique_ptr<SecureSession> out(new SecureSession(
      task.id, privacy::SumClient(secure.client, {.id = secure.sum, .length = secure.length},
                                  {.signing_key = identity.signing_key.get(),
                                   .trusted_signers = identity.trusted_signers})));
  TRY(const auto sent, exchange({.method = "PUT", .part = "keys", .body = out->client_.keys()}));
  if (!sent) return no_session();
  TRY(const auto neighbours, exchange({.method = "GET", .part = "keys"}));
  if (!neighbours) return no_session();
  const std::int64_t clients = (*neighbours)["clients"].as_integer();
  if (clients < 3 || clients > kSumClientsMax)
    return Error(Code::kInvalid, "the aggregator's answer has no number of clients from 3");
  out->clients_ = static_cast<std::uint64_t>(clients);
  TRY_VOID(out->client_.take_neighbours(*neighbours));
  TRY(const auto shared,
      exchange({.method = "PUT", .part = "shares", .body = out->client_.shares()}));
  if (!shared) return no_session();
  TRY(const auto shares, exchange({.method = "GET", .part = "shares"}));
  if (!shares) return no_session();
  TRY_VOID(out->client_.take_shares(*shares));
  Json opened = out->client_.opened();
  for (const Json& name : opened["unopened"].as_array())
    log::warn("neighbour sent shares that cannot be opened",
              {{"task", task.id}, {"neighbour", name.as_string()}});
  TRY(const auto reported,
      exchange({.method = "PUT", .part = "opened", .body = std::move(opened)}));
  if (!reported) return no_session();
  TRY(const auto members, exchange({.method = "GET", .part = "opened"}));
  if (!members) return no_session();
  const Status taken = out->client_.take_members(*members);
  if (!taken.ok() && taken.error().code() == Code::kUnavailable) return no_session();
  TRY_VOID(taken);
  return out;
}

Result<std::string> SecureSession::masked(const Task& task, const TrainedUpdate& trained) {
  const Task::Secure& secure = *task.secure;
  if (secure.length != trained.delta.size() + federated::kMaskedTail)
    return Error(Code::kInvalid, "the secure sum has " + std::to_string(secure.length) +
                                     " values, and the model has " +
                                     std::to_string(trained.delta.size()));
  const federated::MaskedForm form{.limit = secure.limit,
                                   .clients = clients_,
                                   .weight_max = secure.weight_max.value_or(0),
                                   .clip = secure.clip.value_or(0)};
  TRY(federated::MaskedValues values, federated::to_integers(form, trained.delta, trained.samples));
  if (values.cut > 0)
    log::warn("values beyond secureAggregation.limit are cut",
              {{"task", task.id}, {"values", values.cut}, {"limit", secure.limit}});
  TRY_VOID(client_.add_masks(values.values));
  return federated::encode_masked(
      {.task = task.id, .base = task.model.digest, .metrics = trained.metrics}, values.values);
}

Status SecureSession::reveal(const Exchange& exchange) {
  TRY(const auto question, exchange({.method = "GET", .part = "unmask"}));
  if (!question) return {};
  TRY(Json answer, client_.unmask(*question));
  TRY_VOID(exchange({.method = "PUT", .part = "unmask", .body = std::move(answer)}));
  return {};
}

}  // namespace varda::participant
