#include "codec/internal/gunzip.h"

#ifdef VARDA_HAVE_ISAL
#include <algorithm>
#include <isa-l/igzip_lib.h>
#endif

namespace varda::codec::internal {

#ifdef VARDA_HAVE_ISAL
namespace {

constexpr std::size_t kOutBytes = 256 << 10;
constexpr std::string_view kMagic = "\x1F\x8B";

class IsalGunzip final : public Gunzip {
 public:
  IsalGunzip(std::string head, ByteSource source)
      : source_(std::move(source)), input_(std::move(head)) {
    begin_member();
  }

  Result<std::string> read() override {
    std::string out(kOutBytes, '\0');
    std::size_t filled = 0;
    while (filled < out.size() && !ended_) {
      // Drains the engine's internal output before reading more.
      const bool finished = state_->block_state == ISAL_BLOCK_FINISH;
      if (finished || (at_ == input_.size() && !more_inside_)) {
        if (finished) TRY_VOID(next_member());
        if (ended_) break;
        if (at_ == input_.size()) TRY_VOID(refill());
        if (ended_)
          return Error(Code::kCorrupt, "the archive is damaged: the gzip stream ends early");
      }
      TRY(const std::size_t got, step(out.data() + filled, out.size() - filled));
      filled += got;
    }
    out.resize(filled);
    return out;
  }

 private:
  void begin_member() {
    isal_inflate_init(state_.get());
    state_->crc_flag = ISAL_GZIP;
  }

  // Reads the next input; sets `ended_` at the end of the source.
  Status refill() {
    TRY(input_, source_());
    at_ = 0;
    ended_ = input_.empty();
    return {};
  }

  Status next_member() {
    // Two bytes distinguish another member from appended data or padding.
    std::string magic;
    while (magic.size() < kMagic.size()) {
      if (at_ == input_.size()) TRY_VOID(refill());
      if (ended_) return {};
      magic += input_[at_++];
    }
    if (magic != kMagic) {
      ended_ = true;
      return {};
    }
    input_ = magic + input_.substr(at_);
    at_ = 0;
    begin_member();
    return {};
  }

  Result<std::size_t> step(char* out, std::size_t room) {
    // ISA-L lengths have 32 bits.
    constexpr std::size_t kMax = std::size_t{1} << 30;
    const std::size_t in = std::min(input_.size() - at_, kMax);
    state_->next_in = reinterpret_cast<std::uint8_t*>(input_.data()) + at_;
    state_->avail_in = static_cast<std::uint32_t>(in);
    state_->next_out = reinterpret_cast<std::uint8_t*>(out);
    state_->avail_out = static_cast<std::uint32_t>(std::min(room, kMax));
    TRY_VOID(judge(isal_inflate(state_.get())));
    at_ += in - state_->avail_in;
    more_inside_ = state_->avail_out == 0;
    return room - state_->avail_out;
  }

  static Status judge(int code) {
    if (code == ISAL_DECOMP_OK || code == ISAL_END_INPUT) return {};
    if (code == ISAL_INCORRECT_CHECKSUM)
      return Error(Code::kCorrupt, "the archive is damaged: wrong gzip checksum");
    return Error(Code::kCorrupt, "the archive is damaged: bad gzip data");
  }

  const ByteSource source_;
  std::string input_;
  std::size_t at_ = 0;        // in input_
  bool more_inside_ = false;  // the last step filled the output
  bool ended_ = false;
  const std::unique_ptr<inflate_state> state_ = std::make_unique<inflate_state>();
};

}  // namespace

std::unique_ptr<Gunzip> Gunzip::over(std::string head, ByteSource source) {
  return std::make_unique<IsalGunzip>(std::move(head), std::move(source));
}
#else
std::unique_ptr<Gunzip> Gunzip::over(std::string, ByteSource) { return nullptr; }
#endif

}  // namespace varda::codec::internal
