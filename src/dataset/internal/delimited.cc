#include "dataset/internal/delimited.h"

#include <vector>

#include "codec/digest.h"
#include "dataset/header.h"

namespace varda::dataset {
namespace {

/// Splits a record without defects into fields.
std::vector<std::string> fields_of(std::string_view record, const Dialect& dialect) {
  if (record.ends_with('\n')) record.remove_suffix(1);
  if (record.ends_with('\r')) record.remove_suffix(1);
  std::vector<std::string> fields(1);
  bool inside = false;
  for (std::size_t i = 0; i < record.size(); ++i) {
    const char c = record[i];
    if (dialect.quote != '\0' && c == dialect.quote) {
      // The second half of a doubled quote gives one quote.
      if (!inside && i > 0 && record[i - 1] == dialect.quote) fields.back() += c;
      inside = !inside;
    } else if (c == dialect.delimiter && !inside) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

}  // namespace

bool DelimitedScanner::names_columns() const {
  if (defect_ != Defect::kNone || first_.size() > kHeaderBytesMax) return false;
  return dataset::names_columns(fields_of(first_, dialect_));
}

std::string DelimitedScanner::why_malformed(std::uint64_t length) const {
  if (defect_ == Defect::kStrayQuote) return "a quote inside an unquoted field";
  if (defect_ == Defect::kTextBehindQuote)
    return "text between a closing quote and the end of the field";
  if (defect_ == Defect::kNul) return "a NUL byte";
  if (length > kRecordBytesMax)
    return "longer than " + std::to_string(kRecordBytesMax >> 20) + " MiB";
  return std::to_string(delimiters_ + 1) + (delimiters_ == 0 ? " field" : " fields") +
         " where the first record has " + std::to_string(expected_ + 1);
}

void DelimitedScanner::end_odd_record(std::uint64_t length) {
  const bool first = !has_header_;
  if (first) {
    expected_ = delimiters_;
    has_header_ = header_ == Header::kYes || (header_ == Header::kAuto && names_columns());
  }
  if (defect_ == Defect::kNone && length <= kRecordBytesMax && delimiters_ == expected_) {
    if (!first || !*has_header_) ++tally_.samples;
  } else if (tally_.malformed > 0) {
    ++tally_.malformed;  // there may be as many as records, so only the first gets a description
  } else {
    add_malformed(tally_, {"", record_line_ + 1, record_at_, why_malformed(length)});
  }
  first_.clear();
  first_.shrink_to_fit();
}

void DelimitedScanner::step(char c, std::uint64_t at) {
  if (!has_header_ && first_.size() <= kHeaderBytesMax) first_ += c;
  const bool after_cr = std::exchange(last_cr_, c == '\r');
  const auto defect = [&](Defect what) {
    if (defect_ == Defect::kNone) defect_ = what;
  };
  if (c == '\0') defect(Defect::kNul);
  const bool is_quote = dialect_.quote != '\0' && c == dialect_.quote;
  if (c == '\n') {
    ++lines_;
    if (state_ == State::kQuoted) return;
    end_record(at, after_cr);
    record_line_ = lines_;
    state_ = State::kFieldStart;
    return;
  }
  switch (state_) {
    case State::kQuoted:
      if (is_quote) state_ = State::kQuoteSeen;
      return;
    case State::kQuoteSeen:
      if (is_quote) {
        state_ = State::kQuoted;
        return;
      }
      if (c == '\r') {
        state_ = State::kQuoteSeenCr;
        return;
      }
      if (c != dialect_.delimiter) defect(Defect::kTextBehindQuote);
      break;
    case State::kQuoteSeenCr:
      defect(Defect::kTextBehindQuote);
      break;
    case State::kFieldStart:
      if (is_quote) {
        state_ = State::kQuoted;
        return;
      }
      break;
    case State::kPlain:
      if (is_quote) defect(Defect::kStrayQuote);
      break;
  }
  if (c == dialect_.delimiter) {
    ++delimiters_;
    state_ = State::kFieldStart;
  } else {
    state_ = State::kPlain;
  }
}

void DelimitedScanner::scan(std::string_view bytes) {
  std::uint64_t at = offset();
  if (!started_ && !bytes.empty()) {
    started_ = true;
    record_at_ = at;
  }
  // The first record is kept until the header decision.
  while (!has_header_ && first_.size() <= kHeaderBytesMax && !bytes.empty()) {
    step(bytes.front(), at++);
    bytes.remove_prefix(1);
  }
  const std::size_t whole = bytes.size() / kBlockBytes * kBlockBytes;
  blocks(bytes.substr(0, whole), at);
  at += whole;
  bytes.remove_prefix(whole);
  for (const char c : bytes) step(c, at++);
}

Tally DelimitedScanner::finish() {
  const std::uint64_t at = offset();
  if (started_ && at > record_at_) {
    if (state_ == State::kQuoted) {
      add_malformed(tally_, {"", record_line_ + 1, record_at_,
                             "a quoted field is not closed before the end"});
    } else {
      end_record(at, last_cr_);
    }
  }
  if (has_header_) tally_.header = *has_header_ ? "yes" : "no";
  return tally_;
}

Json DelimitedScanner::save_own() const {
  Json out = Json::object({{"tally", save_tally(tally_)},
                           {"state", static_cast<int>(state_)},
                           {"defect", static_cast<int>(defect_)},
                           {"lastCr", last_cr_ ? 1 : 0},
                           {"started", started_ ? 1 : 0},
                           {"recordAt", record_at_},
                           {"recordLine", record_line_},
                           {"lines", lines_},
                           {"delimiters", delimiters_},
                           {"expected", expected_},
                           {"header", has_header_ ? (*has_header_ ? 1 : 0) : 2},
                           {"first", codec::base64(first_)}});
  return out;
}

Status DelimitedScanner::restore_own(const Json& saved) {
  Saved in(saved);
  TRY(tally_, restore_tally(saved["tally"]));
  state_ = static_cast<State>(in.number("state", static_cast<std::uint64_t>(State::kQuoteSeenCr)));
  defect_ = static_cast<Defect>(in.number("defect", static_cast<std::uint64_t>(Defect::kNul)));
  last_cr_ = in.flag("lastCr");
  started_ = in.flag("started");
  record_at_ = in.number("recordAt");
  record_line_ = in.number("recordLine");
  lines_ = in.number("lines");
  delimiters_ = in.number("delimiters");
  expected_ = in.number("expected");
  const std::uint64_t header = in.number("header", 2);
  if (header < 2) has_header_ = header == 1;
  first_ = in.bytes("first", kHeaderBytesMax + 1);
  return in.status();
}

}  // namespace varda::dataset
