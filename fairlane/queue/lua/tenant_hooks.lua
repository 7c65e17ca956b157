-- Whether a tenant wants the outcomes of jobs, as its endpoints stand now: what became of deliveries may have disabled some.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant
-- returns  '1' | '0', and how often that changed
-- errors   none
-- events   none; PUBLISH none
-- cost     O(endpoints of the tenant)
-- include: endpoint

return {note_hooks(ARGV[2])}
