//! The words, with the codes that they stand for.

pub(super) const OPENAI: &str = "api.openai.com";
pub(super) const ANTHROPIC: &str = "api.anthropic.com";
pub(in super::super) const GEMINI: &str = "generativelanguage.googleapis.com";
pub(super) const MISTRAL: &str = "api.mistral.ai";
pub(super) const GROQ: &str = "api.groq.com";
pub(super) const XAI: &str = "api.x.ai";
pub(super) const KIMI: &str = "api.moonshot.ai";
pub(super) const DASHSCOPE: &str = "dashscope-intl.aliyuncs.com";
pub(super) const GLM: &str = "open.bigmodel.cn";
pub(super) const MINIMAX: &str = "api.minimax.io";
pub(super) const DEEPSEEK: &str = "api.deepseek.com";
pub(in super::super) const OPENROUTER: &str = "openrouter.ai";
pub(in super::super) const ANY: &str = "models.example";

pub(in super::super) const OVERFLOW: &str = "llm.context_overflow";
pub(in super::super) const NO_MONEY: &str = "llm.auth";
pub(super) const NO_MODEL: &str = "llm.model_gone";
pub(super) const REFUSED: &str = "llm.invalid_request";

pub(super) type Row = (&'static str, u16, &'static str, &'static str);

pub(super) const OVERFLOWS: &[Row] = &[
    (
        OPENAI,
        400,
        r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        OVERFLOW,
    ),
    (
        OPENAI,
        400,
        r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}"#,
        OVERFLOW,
    ),
    (
        OPENAI,
        400,
        r#"{"error":{"message":"Invalid 'messages[3].content': string too long. Expected a string with maximum length 10485760, but got a string with length 10485999 instead.","type":"invalid_request_error","param":"messages[3].content","code":"string_above_max_length"}}"#,
        OVERFLOW,
    ),
    (
        ANTHROPIC,
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#,
        OVERFLOW,
    ),
    (
        ANTHROPIC,
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again"}}"#,
        OVERFLOW,
    ),
    (
        GEMINI,
        400,
        r#"[{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}]"#,
        OVERFLOW,
    ),
    (
        MISTRAL,
        400,
        r#"{"object":"error","message":"Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_invalid_args","code":"3051"}"#,
        OVERFLOW,
    ),
    (
        GROQ,
        400,
        r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        OVERFLOW,
    ),
    (
        XAI,
        400,
        r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
        OVERFLOW,
    ),
    (
        XAI,
        400,
        r#"{"code":"invalid-argument","error":"[input_too_large] The request exceeds budget."}"#,
        OVERFLOW,
    ),
    (
        KIMI,
        400,
        r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)","type":"invalid_request_error"}}"#,
        OVERFLOW,
    ),
    (
        DASHSCOPE,
        400,
        r#"{"error":{"code":"invalid_parameter_error","param":null,"message":"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]","type":"invalid_request_error"}}"#,
        OVERFLOW,
    ),
    (
        GLM,
        400,
        r#"{"error":{"code":"1261","message":"Prompt 超长"}}"#,
        OVERFLOW,
    ),
    (
        GLM,
        400,
        r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#,
        OVERFLOW,
    ),
    (
        MINIMAX,
        400,
        r#"{"type":"error","error":{"type":"bad_request_error","message":"invalid params, context window exceeds limit (2013)"}}"#,
        OVERFLOW,
    ),
    (
        DEEPSEEK,
        400,
        r#"{"error":{"message":"This model's maximum context length is 131072 tokens. However, you requested 140000 tokens","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
        OVERFLOW,
    ),
    (
        OPENROUTER,
        400,
        r#"{"error":{"message":"This endpoint's maximum context length is 65536 tokens. However, you requested about 70000 tokens","code":400}}"#,
        OVERFLOW,
    ),
    (
        OPENROUTER,
        400,
        r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long: 9 tokens > 8 maximum\"}}","provider_name":"X"}}}"#,
        OVERFLOW,
    ),
    (
        "api.together.xyz",
        422,
        r#"{"error":{"message":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens","type":"invalid_request_error"}}"#,
        OVERFLOW,
    ),
    (
        "api.githubcopilot.com",
        400,
        r#"{"error":{"message":"prompt token count of 160000 exceeds the limit of 128000","code":"model_max_prompt_tokens_exceeded"}}"#,
        OVERFLOW,
    ),
    (
        "qianfan.baidubce.com",
        400,
        r#"{"error":{"code":"tokens_too_long","message":"Prompt tokens too long","type":"invalid_request_error"}}"#,
        OVERFLOW,
    ),
    (
        ANY,
        400,
        r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}"#,
        OVERFLOW,
    ),
    (
        ANY,
        400,
        r#"{"error":"Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough"}"#,
        OVERFLOW,
    ),
    (
        ANY,
        400,
        r#"{"object":"error","message":"This model's maximum context length is 32768 tokens. However, you requested 40000 tokens (35000 in the messages, 5000 in the completion).","type":"BadRequestError","code":400}"#,
        OVERFLOW,
    ),
    (
        ANY,
        500,
        r#"{"error":{"message":"litellm.ContextWindowExceededError: this model's maximum context length is 8192"}}"#,
        OVERFLOW,
    ),
    (
        ANY,
        400,
        r#"{"message":"Input is too long for requested model."}"#,
        OVERFLOW,
    ),
    (
        ANY,
        400,
        r#"{"error":{"message":"输入长度超过模型限制"}}"#,
        OVERFLOW,
    ),
];

pub(super) const UNPAID: &[Row] = &[
    (
        OPENAI,
        429,
        r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
        NO_MONEY,
    ),
    (
        ANTHROPIC,
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
        NO_MONEY,
    ),
    (
        ANTHROPIC,
        402,
        r#"{"type":"error","error":{"type":"billing_error","message":"x"}}"#,
        NO_MONEY,
    ),
    (
        ANTHROPIC,
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"Limit reached","details":{"error_code":"enforced_spend_limit_reached"}}}"#,
        NO_MONEY,
    ),
    (
        ANTHROPIC,
        429,
        r#"{"type":"error","error":{"details":null,"type":"rate_limit_error","message":"This request would exceed your account's monthly spend limit. Please try again later."}}"#,
        NO_MONEY,
    ),
    (
        ANTHROPIC,
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-08-01 at 00:00 UTC."}}"#,
        NO_MONEY,
    ),
    (
        GLM,
        429,
        r#"{"error":{"code":"1113","message":"余额不足或无可用资源包,请充值。"}}"#,
        NO_MONEY,
    ),
    (
        GLM,
        429,
        r#"{"error":{"code":"1113","message":"Insufficient balance or no resource package. Please recharge."}}"#,
        NO_MONEY,
    ),
    (
        GLM,
        429,
        r#"{"error":{"code":"1309","message":"您的 GLM Coding Plan 套餐已到期"}}"#,
        NO_MONEY,
    ),
    (
        XAI,
        429,
        r#"{"code":"Some resource has been exhausted","error":"Your team has either used all available credits or reached its monthly spending limit."}"#,
        NO_MONEY,
    ),
    (
        KIMI,
        429,
        r#"{"error":{"message":"Your account is suspended due to insufficient balance, please recharge your account","type":"exceeded_current_quota_error"}}"#,
        NO_MONEY,
    ),
    (
        DASHSCOPE,
        400,
        r#"{"error":{"code":"Arrearage","param":null,"message":"Access denied, please make sure your account is in good standing.","type":"Arrearage"}}"#,
        NO_MONEY,
    ),
    (
        DASHSCOPE,
        403,
        r#"{"error":{"code":"AllocationQuota.FreeTierOnly","message":"The free tier of the model has been exhausted."}}"#,
        NO_MONEY,
    ),
    (
        DEEPSEEK,
        402,
        r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#,
        NO_MONEY,
    ),
    (
        OPENROUTER,
        402,
        r#"{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}"#,
        NO_MONEY,
    ),
    (
        "api.fireworks.ai",
        412,
        r#"{"error":{"message":"Account x is suspended"}}"#,
        NO_MONEY,
    ),
    (
        GEMINI,
        429,
        r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}"#,
        NO_MONEY,
    ),
    (
        GEMINI,
        400,
        r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}]"#,
        NO_MONEY,
    ),
    (
        ANY,
        403,
        r#"{"error":{"message":"用户额度不足","type":"new_api_error","code":"insufficient_user_quota"}}"#,
        NO_MONEY,
    ),
];

pub(super) const THROTTLED: &[(&str, u16, &str, Option<u128>)] = &[
    (
        DASHSCOPE,
        429,
        r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        None,
    ),
    (
        DASHSCOPE,
        400,
        r#"{"code":"Throttling.RateQuota","message":"Requests rate limit exceeded, please try again later."}"#,
        None,
    ),
    (
        GLM,
        429,
        r#"{"error":{"code":"1302","message":"您当前使用该API的并发数过高，请降低并发"}}"#,
        None,
    ),
    (
        GLM,
        429,
        r#"{"error":{"code":"1308","message":"已达到 5 小时的使用上限"}}"#,
        Some(900_000),
    ),
    (
        GEMINI,
        429,
        r#"[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"38s"}]}}]"#,
        Some(38_000),
    ),
    (
        GEMINI,
        429,
        r#"[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. Please retry in 45.8s.","status":"RESOURCE_EXHAUSTED"}}]"#,
        Some(45_800),
    ),
    (
        GEMINI,
        429,
        r#"[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"38s"}]}}]"#,
        Some(900_000),
    ),
    (
        GROQ,
        429,
        r#"{"error":{"message":"Rate limit reached for model `x` on tokens per day (TPD): Limit 100000, Used 99000, Requested 3000. Please try again in 9m38.016s.","type":"tokens","code":"rate_limit_exceeded"}}"#,
        Some(578_016),
    ),
    (
        OPENAI,
        429,
        r#"{"error":{"message":"Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 850ms.","type":"tokens","code":"rate_limit_exceeded"}}"#,
        Some(850),
    ),
    (
        "x.openai.azure.com",
        429,
        r#"{"error":{"code":"429","message":"Requests have exceeded call rate limit. Please retry after 45 seconds."}}"#,
        Some(45_000),
    ),
    (
        OPENROUTER,
        429,
        r#"{"error":{"message":"Rate limit exceeded: free-models-per-min. ","code":429,"metadata":{"headers":{"X-RateLimit-Limit":"20","X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1764000030000"}}}}"#,
        Some(30_000),
    ),
    (
        OPENROUTER,
        429,
        r#"{"error":{"message":"Rate limit exceeded: free-models-per-day. ","code":429}}"#,
        Some(900_000),
    ),
    (
        ANTHROPIC,
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 40,000 input tokens per minute"}}"#,
        None,
    ),
    (
        MISTRAL,
        429,
        r#"{"object":"error","message":"Service tier capacity exceeded for this model.","type":"service_tier_capacity_exceeded","code":"3505"}"#,
        None,
    ),
    (
        KIMI,
        429,
        r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded_error"}}"#,
        None,
    ),
    (
        ANY,
        429,
        r#"{"message":"Too many tokens, please wait before trying again."}"#,
        None,
    ),
];

pub(super) const GONE: &[Row] = &[
    (
        OPENAI,
        404,
        r#"{"error":{"message":"The model `gpt-3` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
        NO_MODEL,
    ),
    (
        OPENAI,
        403,
        r#"{"error":{"message":"Project `p` does not have access to model `gpt-5`","type":"invalid_request_error","code":"model_not_found"}}"#,
        NO_MODEL,
    ),
    (
        ANTHROPIC,
        404,
        r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-2.0"}}"#,
        NO_MODEL,
    ),
    (
        GEMINI,
        404,
        r#"[{"error":{"code":404,"message":"models/gemini-1.0-pro is not found for API version v1main, or is not supported for generateContent.","status":"NOT_FOUND"}}]"#,
        NO_MODEL,
    ),
    (
        GROQ,
        400,
        r#"{"error":{"message":"The model `mixtral-8x7b-32768` has been decommissioned and is no longer supported.","type":"invalid_request_error","code":"model_decommissioned"}}"#,
        NO_MODEL,
    ),
    (
        DEEPSEEK,
        400,
        r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
        NO_MODEL,
    ),
    (
        DEEPSEEK,
        400,
        r#"{"error":{"message":"The supported API model names are deepseek-v4-pro or deepseek-v4-flash, but you passed deepseek-chat.","type":"invalid_request_error"}}"#,
        NO_MODEL,
    ),
    (
        KIMI,
        404,
        r#"{"error":{"message":"Not found the model kimi-k1 or Permission denied","type":"resource_not_found_error"}}"#,
        NO_MODEL,
    ),
    (
        MISTRAL,
        400,
        r#"{"object":"error","message":"Invalid model: mistral-old","type":"invalid_model","code":"1500"}"#,
        NO_MODEL,
    ),
    (
        GLM,
        400,
        r#"{"error":{"code":"1211","message":"模型不存在，请检查模型代码。"}}"#,
        NO_MODEL,
    ),
    (
        OPENROUTER,
        404,
        r#"{"error":{"message":"No endpoints found for x/y.","code":404}}"#,
        NO_MODEL,
    ),
    (
        OPENROUTER,
        400,
        r#"{"error":{"message":"x/y is not a valid model ID","code":400}}"#,
        NO_MODEL,
    ),
    (
        "x.openai.azure.com",
        404,
        r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}"#,
        NO_MODEL,
    ),
    (
        ANY,
        404,
        r#"{"error":{"message":"model \"llama9\" not found, try pulling it first","type":"api_error"}}"#,
        NO_MODEL,
    ),
    (
        ANY,
        404,
        r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","code":404}"#,
        NO_MODEL,
    ),
    (ANY, 410, "", NO_MODEL),
    (
        OPENROUTER,
        404,
        r#"{"error":{"message":"No endpoints found that support image input","code":404}}"#,
        REFUSED,
    ),
    (
        "x.openai.azure.com",
        404,
        r#"{"error":{"code":"404","message":"Resource not found"}}"#,
        REFUSED,
    ),
    (ANY, 404, r#"{"detail":"Not Found"}"#, REFUSED),
    (ANY, 404, "404 page not found", REFUSED),
    (
        ANY,
        404,
        "<html>the model `x` does not exist</html>",
        REFUSED,
    ),
    (
        OPENAI,
        400,
        r#"{"error":{"message":"Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.","type":"invalid_request_error","param":"input"}}"#,
        REFUSED,
    ),
];
