-- Takes a tenant's file away. Its content is deleted by whoever called, or by a later sweep.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, file's id
-- returns  its content's name; '' if the tenant has no such file
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log F)
-- include: time file
return remove_file(ARGV[2], ARGV[3]) or ''
